// POST /v1/responses and /v1/responses/input_tokens.
// Deliberately stateless: nothing is stored, every request brings its whole input.
#include <array>
#include <utility>

#include "kvasir/server/chat_job.h"
#include "kvasir/server/responses_format.h"
#include "kvasir/server/responses_request.h"
#include "kvasir/server/route_answer.h"
#include "kvasir/server/routes.h"

namespace kvasir {
namespace {

Result<ChatRequest> ParseResponses(const ServerContext& context, const Json& body) {
  KVASIR_TRY(Json chat, ChatBodyOfResponses(body));
  KVASIR_TRY(ChatRequest request, ParseChatRequest(std::move(chat), context.defaults));
  // Items are finished, whoever said them.
  request.last_answer = LastAnswer::kFinished;
  return request;
}

// What chat requests call otherwise.
constexpr std::array kNames = {
    FieldName{"response_format.json_schema", "text.format"},
    FieldName{"response_format", "text.format"},
    FieldName{".function.", "."},
    FieldName{"reasoning_effort", "reasoning.effort"},
};

ApiError ErrorOf(ApiError error) {
  if (error.param == "messages") error.param = "input";
  return WithFieldNames(std::move(error), kNames);
}

}  // namespace

void ServeResponses(const ServerContext& context, const HttpRequest& request, HttpReply reply) {
  const auto body = ParseBody(request);
  if (!body.ok()) return reply.Send(ErrorResponse(ToApiError(body.error())));
  const auto chat = ParseResponses(context, *body);
  if (!chat.ok()) return reply.Send(ErrorResponse(ErrorOf(ToApiError(chat.error()))));
  AnswerJob job;
  if (auto error = MakeChatJob(context, *chat, &job)) {
    return reply.Send(ErrorResponse(ErrorOf(*std::move(error))));
  }
  ResponsesFormatOptions options;
  options.head = NewHead(context, "resp_", chat->model);
  job.id = options.head.id;
  options.message_id = NewId("msg_");
  options.reasoning_id = NewId("rs_");
  options.echoed = EchoedMembers(*body);
  if (chat->top_logprobs) options.tokenizer = context.bundle->tokenizer();
  job.scores_text = true;
  job.format = std::make_unique<ResponsesFormat>(std::move(options));
  SubmitAnswer(context, request, std::move(job), std::move(reply));
}

void ServeResponseTokens(const ServerContext& context, const HttpRequest& request,
                         HttpReply reply) {
  const auto body = ParseBody(request);
  if (!body.ok()) return reply.Send(ErrorResponse(ToApiError(body.error())));
  const auto chat = ParseResponses(context, *body);
  if (!chat.ok()) return reply.Send(ErrorResponse(ErrorOf(ToApiError(chat.error()))));
  Json count;
  if (auto error = CountChatTokens(context, *chat, &count)) {
    return reply.Send(ErrorResponse(ErrorOf(*std::move(error))));
  }
  count.Set("object", "response.input_tokens");
  reply.Send({.body = count.Dump()});
}

}  // namespace kvasir
