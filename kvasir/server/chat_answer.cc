#include "kvasir/server/chat_answer.h"

#include <string>
#include <utility>

namespace kvasir {

ChatAnswer::ChatAnswer(AnswerOptions options, HttpReply* reply, const std::atomic<bool>* stop)
    : options_(std::move(options)),
      reply_(reply),
      stop_(stop),
      last_sent_(std::chrono::steady_clock::now()) {}

GenerationCallbacks ChatAnswer::Callbacks() {
  GenerationCallbacks callbacks;
  callbacks.is_cancelled = [this] {
    return reply_->is_client_gone() || stop_->load(std::memory_order_relaxed);
  };
  if (!options_.is_stream) return callbacks;
  callbacks.on_prefill = [this](int64_t done, int64_t total) { Ping(done, total); };
  callbacks.on_token = [this](Token) { Begin(); };
  callbacks.on_text = [this](std::string_view text) {
    Send(SseEvent(TextChunk(options_.head, text, options_.includes_usage)));
  };
  return callbacks;
}

void ChatAnswer::Finish(const Result<GenerationResult>& result) {
  if (reply_->is_client_gone()) return;
  if (!result.ok()) return Fail(ToApiError(result.error()));
  if (result->finish == FinishReason::kCancelled) {
    return Fail({503, "the server is shutting down", "", ""});
  }
  if (!options_.is_stream) {
    HttpResponse response;
    response.body = CompletionJson(options_.head, *result).Dump();
    return reply_->Send(response);
  }
  Begin();
  Send(SseEvent(FinishChunk(options_.head, *result, options_.includes_usage)));
  if (options_.includes_usage) Send(SseEvent(UsageChunk(options_.head, *result)));
  Send(kSseDone);
  reply_->Finish();
}

void ChatAnswer::Fail(const ApiError& error) {
  if (!reply_->is_started()) return reply_->Send(ErrorResponse(error));
  Send(SseEvent(ErrorJson(error)));
  reply_->Finish();
}

// Not before the first token: until then an error can still be an HTTP status.
void ChatAnswer::Begin() {
  if (reply_->is_started()) return;
  HttpResponse head;
  head.content_type = "text/event-stream; charset=utf-8";
  head.headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}};
  (void)reply_->StartStream(head);
  Send(SseEvent(RoleChunk(options_.head, options_.includes_usage)));
}

void ChatAnswer::Send(std::string_view event) {
  // A failed write shows in is_client_gone, which ends the generation.
  (void)reply_->Write(event);
  last_sent_ = std::chrono::steady_clock::now();
}

void ChatAnswer::Ping(int64_t done, int64_t total) {
  if (std::chrono::steady_clock::now() - last_sent_ < options_.ping_interval) return;
  Begin();
  Send(SseComment("prompt " + std::to_string(done) + "/" + std::to_string(total)));
}

}  // namespace kvasir
