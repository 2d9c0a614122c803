// POST /v1/chat/completions.
// Deliberately short: parsing is chat_request's, writing chat_format's.
#include <utility>

#include "kvasir/server/chat_format.h"
#include "kvasir/server/chat_job.h"
#include "kvasir/server/route_answer.h"
#include "kvasir/server/routes.h"

namespace kvasir {

void ServeChat(const ServerContext& context, const HttpRequest& request, HttpReply reply) {
  auto body = ParseBody(request);
  if (!body.ok()) return reply.Send(ErrorResponse(ToApiError(body.error())));
  const auto chat = ParseChatRequest(*std::move(body), context.defaults);
  if (!chat.ok()) return reply.Send(ErrorResponse(ToApiError(chat.error())));
  AnswerJob job;
  if (const auto error = MakeChatJob(context, *chat, &job)) {
    return reply.Send(ErrorResponse(*error));
  }
  ChatFormatOptions options;
  options.head = NewHead(context, "chatcmpl-", chat->model);
  job.id = options.head.id;
  options.choices = chat->choices;
  options.includes_usage = chat->includes_usage;
  if (chat->top_logprobs) options.tokenizer = context.bundle->tokenizer();
  job.format = std::make_unique<ChatFormat>(std::move(options));
  SubmitAnswer(context, request, std::move(job), std::move(reply));
}

}  // namespace kvasir
