// POST /v1/messages and /v1/messages/count_tokens, Anthropic's API.
// Deliberately does not look at anthropic-version: there is one.
#include <array>
#include <optional>
#include <utility>

#include "kvasir/server/chat_job.h"
#include "kvasir/server/messages_format.h"
#include "kvasir/server/messages_request.h"
#include "kvasir/server/route_answer.h"
#include "kvasir/server/routes.h"

namespace kvasir {
namespace {

// What chat requests call otherwise.
constexpr std::array kNames = {
    FieldName{"response_format.json_schema", "output_config.format"},
    FieldName{".function.parameters", ".input_schema"},
    FieldName{".function.", "."},
    FieldName{"reasoning_effort", "output_config.effort"},
};

HttpResponse Refusal(ApiError error) {
  return ErrorResponse(WithFieldNames(std::move(error), kNames), ErrorStyle::kAnthropic);
}

Result<ChatRequest> ParseMessages(const ServerContext& context, const HttpRequest& request,
                                  MaxTokensRule rule) {
  KVASIR_TRY(const Json body, ParseBody(request));
  KVASIR_TRY(Json chat, ChatBodyOfMessages(body, rule));
  return ParseChatRequest(std::move(chat), context.defaults);
}

}  // namespace

void ServeMessages(const ServerContext& context, const HttpRequest& request, HttpReply reply) {
  const auto chat = ParseMessages(context, request, MaxTokensRule::kRequired);
  if (!chat.ok()) return reply.Send(Refusal(ToApiError(chat.error())));
  AnswerJob job;
  if (const auto error = MakeChatJob(context, *chat, &job)) {
    return reply.Send(Refusal(*error));
  }
  job.call_id_prefix = "toolu_";
  AnswerHead head = NewHead(context, "msg_", chat->model);
  job.id = head.id;
  job.format = std::make_unique<MessagesFormat>(std::move(head));
  SubmitAnswer(context, request, std::move(job), std::move(reply));
}

void ServeCountTokens(const ServerContext& context, const HttpRequest& request, HttpReply reply) {
  const auto chat = ParseMessages(context, request, MaxTokensRule::kOptional);
  if (!chat.ok()) return reply.Send(Refusal(ToApiError(chat.error())));
  Json count;
  if (const auto error = CountChatTokens(context, *chat, &count)) {
    return reply.Send(Refusal(*error));
  }
  reply.Send({.body = count.Dump()});
}

}  // namespace kvasir
