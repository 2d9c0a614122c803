#include "kvasir/server/http_reply.h"

#include <optional>
#include <utility>

#include "kvasir/base/check.h"

namespace kvasir {

HttpReply::HttpReply(std::shared_ptr<HttpExchange> exchange, HttpForm form)
    : exchange_(std::move(exchange)), form_(form) {}

HttpReply::~HttpReply() {
  if (exchange_ == nullptr) return;
  if (state_ == State::kOpen) Send({.status = 500, .content_type = "", .headers = {}, .body = ""});
  // An unfinished stream must not look complete: the connection ends without the last chunk.
  if (state_ == State::kStreaming) exchange_->End(false);
}

void HttpReply::Send(const HttpResponse& response) {
  KVASIR_CHECK(state_ == State::kOpen);
  state_ = State::kDone;
  std::string bytes = FormatHead(response, response.body.size(), form_);
  if (!form_.is_head_only) bytes += response.body;
  (void)exchange_->Append(bytes);
  exchange_->End(form_.keeps_alive);
}

bool HttpReply::StartStream(const HttpResponse& head) {
  KVASIR_CHECK(state_ == State::kOpen);
  state_ = State::kStreaming;
  form_.keeps_alive = form_.keeps_alive && form_.is_http_1_1;
  return exchange_->Append(FormatHead(head, std::nullopt, form_));
}

bool HttpReply::Write(std::string_view data) {
  KVASIR_CHECK(state_ == State::kStreaming);
  if (data.empty() || form_.is_head_only) return !is_client_gone();
  return form_.is_http_1_1 ? exchange_->Append(FormatChunk(data)) : exchange_->Append(data);
}

void HttpReply::Finish() {
  KVASIR_CHECK(state_ == State::kStreaming);
  state_ = State::kDone;
  if (form_.is_http_1_1 && !form_.is_head_only) (void)exchange_->Append("0\r\n\r\n");
  exchange_->End(form_.keeps_alive);
}

}  // namespace kvasir
