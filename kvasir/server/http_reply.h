// HttpReply: the right to answer one request, once, from any thread.
// Deliberately no second chance: whoever drops it unanswered answers 500.
#ifndef KVASIR_SERVER_HTTP_REPLY_H_
#define KVASIR_SERVER_HTTP_REPLY_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvasir/server/http_exchange.h"
#include "kvasir/server/http_message.h"

namespace kvasir {

// THREADS: one at a time; may outlive the server, whose end the client's end is.
class HttpReply {
 public:
  HttpReply(std::shared_ptr<HttpExchange> exchange, HttpForm form);
  HttpReply(HttpReply&& other) noexcept = default;
  HttpReply& operator=(HttpReply&& other) = delete;
  ~HttpReply();

  // Sent with whatever answer follows. REQUIRES: nothing was sent or started.
  void AddHeader(HttpHeader header) { headers_.push_back(std::move(header)); }

  // Told the status of whatever answer follows, once; never where the client is gone and nobody
  // answers. REQUIRES: as AddHeader.
  void ObserveStatus(std::function<void(int status)> observer) { observer_ = std::move(observer); }

  // The whole answer. REQUIRES: nothing was sent or started.
  void Send(const HttpResponse& response);

  // Begins an answer of unknown length; `head` has no body. REQUIRES: nothing was sent or started.
  // Write waits while the client reads too slowly; both are false once it is gone.
  bool StartStream(const HttpResponse& head);
  bool Write(std::string_view data);
  // The same without waiting, for those who ask is_client_behind now and then.
  bool WriteNow(std::string_view data);
  void Finish();

  // Whether some bytes would tell if the client is there: it has closed its sending side since the
  // stream began. Once for each time.
  bool TakeAsked() { return exchange_->TakeAsked(); }
  // Whether so much is unsent that Write would wait. THREADS: any.
  bool is_client_behind() const { return exchange_->is_full(); }

  bool is_started() const { return state_ != State::kOpen; }
  // The client can no longer get an answer: its connection broke or the server closed it. A client
  // that only closed its sending side is still there.
  bool is_client_gone() const { return exchange_->is_closed(); }

 private:
  std::string Head(HttpResponse response, std::optional<size_t> body_bytes) const;

  enum class State { kOpen, kStreaming, kDone };

  std::shared_ptr<HttpExchange> exchange_;  // null once moved from
  HttpForm form_;
  std::vector<HttpHeader> headers_;
  std::function<void(int status)> observer_;
  State state_ = State::kOpen;
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_HTTP_REPLY_H_
