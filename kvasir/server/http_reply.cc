#include "kvasir/server/http_reply.h"

#include <utility>

#include "kvasir/base/check.h"

namespace kvasir {

HttpReply::HttpReply(std::shared_ptr<HttpExchange> exchange, HttpForm form)
    : exchange_(std::move(exchange)), form_(form) {}

HttpReply::~HttpReply() {
  if (exchange_ == nullptr) return;
  if (is_client_gone()) observer_ = nullptr;  // nobody sees what would be sent
  if (state_ == State::kOpen) Send({.status = 500, .content_type = "", .headers = {}, .body = ""});
  // An unfinished stream must not look complete: the connection ends without the last chunk.
  if (state_ == State::kStreaming) exchange_->End(false);
}

std::string HttpReply::Head(HttpResponse response, std::optional<size_t> body_bytes) const {
  response.body.clear();
  response.headers.insert(response.headers.end(), headers_.begin(), headers_.end());
  return FormatHead(response, body_bytes, form_);
}

void HttpReply::Send(const HttpResponse& response) {
  KVASIR_CHECK(state_ == State::kOpen);
  state_ = State::kDone;
  if (observer_) observer_(response.status);
  std::string bytes = Head(response, response.body.size());
  if (!form_.is_head_only) bytes += response.body;
  (void)exchange_->AppendNow(bytes);
  exchange_->End(form_.keeps_alive);
}

bool HttpReply::StartStream(const HttpResponse& head) {
  KVASIR_CHECK(state_ == State::kOpen);
  state_ = State::kStreaming;
  if (observer_) observer_(head.status);
  form_.keeps_alive = form_.keeps_alive && form_.is_http_1_1;
  return exchange_->AppendNow(Head(head, std::nullopt));
}

bool HttpReply::Write(std::string_view data) {
  exchange_->WaitForRoom();
  return WriteNow(data);
}

bool HttpReply::WriteNow(std::string_view data) {
  KVASIR_CHECK(state_ == State::kStreaming);
  if (data.empty() || form_.is_head_only) return !is_client_gone();
  return form_.is_http_1_1 ? exchange_->AppendNow(FormatChunk(data)) : exchange_->AppendNow(data);
}

void HttpReply::Finish() {
  KVASIR_CHECK(state_ == State::kStreaming);
  state_ = State::kDone;
  if (form_.is_http_1_1 && !form_.is_head_only) (void)exchange_->AppendNow("0\r\n\r\n");
  exchange_->End(form_.keeps_alive);
}

}  // namespace kvasir
