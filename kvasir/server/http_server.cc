#include "kvasir/server/http_server.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <cerrno>
#include <memory>
#include <optional>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace kvasir {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;
using boost::system::error_code;
using tcp = asio::ip::tcp;

// Connections beyond max_connections that are still told 503 instead of being cut off.
constexpr size_t kRefusedConnections = 64;
// After a refusal the client may still be sending; closing at once would reset the connection and
// destroy the answer before it is read. So its bytes are discarded for a while.
constexpr std::chrono::seconds kLinger{5};
constexpr std::chrono::milliseconds kAcceptRetry{100};
// Between two lines of the log that say so.
constexpr std::chrono::seconds kAcceptWarning{10};
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

// Takes "/path?query" apart or, as proxies write it, "http://host/path?query".
void ReadTarget(std::string_view target, HttpRequest* request) {
  constexpr std::string_view kScheme = "http://";
  if (target.starts_with(kScheme)) {
    target.remove_prefix(kScheme.size());
    target.remove_prefix(std::min(target.find_first_of("/?"), target.size()));
  }
  const size_t mark = std::min(target.find('?'), target.size());
  request->path = mark == 0 ? "/" : target.substr(0, mark);
  if (mark < target.size()) request->query = target.substr(mark + 1);
}

HttpRequest HeadOf(const http::request<http::string_body>& message) {
  HttpRequest head;
  head.method = std::string(message.method_string());
  const std::string_view target(message.target().data(), message.target().size());
  if (!target.empty()) ReadTarget(target, &head);
  for (const auto& field : message) {
    head.headers.push_back({std::string(field.name_string()), std::string(field.value())});
  }
  return head;
}

class Connection;

// What a body takes of the room there is for all of them, until nobody has it any more.
class BodyClaim {
 public:
  explicit BodyClaim(std::shared_ptr<std::atomic<uint64_t>> all) : all_(std::move(all)) {}
  ~BodyClaim() { *all_ -= bytes_; }
  BodyClaim(const BodyClaim&) = delete;
  BodyClaim& operator=(const BodyClaim&) = delete;

  uint64_t bytes() const { return bytes_; }
  void Grow(uint64_t bytes) { *all_ += bytes - std::exchange(bytes_, bytes); }

 private:
  const std::shared_ptr<std::atomic<uint64_t>> all_;
  uint64_t bytes_ = 0;
};

// What connections share. Used on the I/O thread only.
struct Hub {
  HttpServerOptions options;
  HttpHandler handler;
  bool is_local = false;  // listens on a loopback address
  asio::io_context io{1};
  // Keeps the I/O thread while answers are being made and nothing else happens.
  asio::executor_work_guard<asio::io_context::executor_type> work{io.get_executor()};
  asio::steady_timer drain{io};
  std::unordered_map<Connection*, std::shared_ptr<Connection>> connections;
  // Of bodies, by all connections and by requests whose connection is gone; outlives the server.
  const std::shared_ptr<std::atomic<uint64_t>> claimed_bytes =
      std::make_shared<std::atomic<uint64_t>>(0);
  bool is_stopping = false;
};

// What is wrong with how a request says where its body ends: others on the way may read it
// otherwise, and what is the end of one request to them be the beginning of another here (RFC
// 9112, 6.1, 11.2).
struct WrongFraming {
  int status = 0;  // 0: nothing
  const char* message = "";
};
template <typename Head>
WrongFraming FramingOf(const Head& head) {
  const size_t codings = head.count(http::field::transfer_encoding);
  if (codings == 0) return {};
  if (head.version() < 11) return {400, "HTTP/1.0 has no Transfer-Encoding"};
  if (codings > 1 || !beast::iequals(head[http::field::transfer_encoding], "chunked")) {
    return {501, "of transfer codings only 'chunked' is read"};
  }
  if (head.count(http::field::content_length) > 0) {
    return {400, "the request has both Content-Length and Transfer-Encoding"};
  }
  return {};
}

// One connection: reads a request, lets it be answered, writes the answer, reads the next.
// Waiting operations hold a reference; Close ends them all. THREADS: the I/O thread.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(tcp::socket socket, Hub* hub, bool is_surplus)
      : hub_(hub), stream_(std::move(socket)), is_surplus_(is_surplus) {}

  void ReadRequest() {
    const HttpServerOptions& options = hub_->options;
    parser_.emplace();
    parser_->header_limit(static_cast<uint32_t>(options.max_header_bytes));
    parser_->body_limit(static_cast<uint64_t>(options.max_body_bytes));
    buffer_.max_size(static_cast<size_t>(options.max_header_bytes) + (64 << 10));
    is_idle_ = true;
    stream_.expires_after(options.idle_timeout);
    http::async_read_header(
        stream_, buffer_, *parser_,
        [self = shared_from_this()](error_code error, size_t) { self->OnHeader(error); });
  }

  // The server stops: idle connections end now, others behind their answer.
  void EndWhenIdle() {
    if (is_idle_) Close();
  }

  void Close() {
    if (is_closed_) return;
    is_closed_ = true;
    ReleaseBody();
    if (exchange_) exchange_->Close();
    exchange_.reset();
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
    stream_.close();
    const auto self = shared_from_this();
    hub_->connections.erase(this);
    if (hub_->is_stopping && hub_->connections.empty()) hub_->drain.cancel();
  }

 private:
  void OnHeader(error_code error) {
    if (is_closed_) return;
    if (error) return OnReadError(error);
    is_idle_ = false;
    if (const WrongFraming wrong = FramingOf(parser_->get()); wrong.status != 0) {
      return Refuse(wrong.status, wrong.message);
    }
    // Trailers behind the body are no headers, whatever they are called (RFC 9110, 6.5.1).
    head_ = HeadOf(parser_->get());
    hosts_ = parser_->get().count(http::field::host);
    if (!HasRoomFor(parser_->content_length().value_or(0))) return RefuseFull();
    // The whole body must have come in this time.
    stream_.expires_after(hub_->options.body_timeout);
    if (beast::iequals(parser_->get()[http::field::expect], "100-continue") &&
        parser_->get().version() >= 11 && !parser_->is_done()) {
      asio::async_write(stream_, asio::buffer(kContinue),
                        [self = shared_from_this()](error_code error, size_t) {
                          if (self->is_closed_) return;
                          error ? self->Close() : self->ReadBody();
                        });
      return;
    }
    ReadBody();
  }

  // Of a body of so many bytes, beside all others; more than a body may have is refused elsewhere.
  bool HasRoomFor(uint64_t bytes) const {
    const auto most = static_cast<uint64_t>(hub_->options.max_body_bytes);
    const uint64_t own = claim_ == nullptr ? 0 : claim_->bytes();
    return *hub_->claimed_bytes - own + std::min(bytes, most) <=
           static_cast<uint64_t>(hub_->options.max_total_body_bytes);
  }
  void RefuseFull() {
    Refuse(503, "the server holds as many requests as it may; try again later",
           {{"Retry-After", "1"}});
  }
  // Only what has come takes room: what was announced, or never ends, keeps nobody out.
  bool ClaimBody() {
    const uint64_t bytes = parser_->get().body().size();
    if (!HasRoomFor(bytes)) return false;
    if (claim_ == nullptr) claim_ = std::make_shared<BodyClaim>(hub_->claimed_bytes);
    claim_->Grow(bytes);
    return true;
  }
  // A request that is still being worked on keeps its own.
  void ReleaseBody() { claim_.reset(); }

  void ReadBody() {
    if (!ClaimBody()) return RefuseFull();
    if (parser_->is_done()) return Dispatch();
    http::async_read_some(stream_, buffer_, *parser_,
                          [self = shared_from_this()](error_code error, size_t) {
                            if (self->is_closed_) return;
                            error ? self->OnReadError(error) : self->ReadBody();
                          });
  }

  void OnReadError(error_code error) {
    if (error == http::error::body_limit) {
      return Refuse(413, "the body is larger than " + std::to_string(hub_->options.max_body_bytes) +
                             " bytes");
    }
    if (error == http::error::header_limit || error == http::error::buffer_overflow) {
      return Refuse(431, "the header is larger than " +
                             std::to_string(hub_->options.max_header_bytes) + " bytes");
    }
    const bool is_malformed =
        error.category() == make_error_code(http::error::bad_method).category();
    if (is_malformed && error != http::error::end_of_stream) {
      return Refuse(400, "the request is no valid HTTP: " + error.message());
    }
    Close();
  }

  // Answers without asking the handler; what the client still sends is not a request.
  void Refuse(int status, const std::string& message, std::vector<HttpHeader> headers = {}) {
    HttpReply reply = OpenReply({.is_http_1_1 = true, .keeps_alive = false});
    SendError(std::move(reply), HeadOf(parser_->get()), status, message, std::move(headers));
  }

  void SendError(HttpReply reply, const HttpRequest& head, int status, const std::string& message,
                 std::vector<HttpHeader> headers = {}) {
    HttpResponse response{.status = status};
    if (hub_->options.refusal) response = hub_->options.refusal(head, status, message);
    std::move(headers.begin(), headers.end(), std::back_inserter(response.headers));
    reply.Send(response);
  }

  HttpReply OpenReply(HttpForm form) {
    is_idle_ = false;
    form_ = form;
    has_sent_ = false;
    const auto wake = [weak = weak_from_this(), executor = hub_->io.get_executor()] {
      asio::post(executor, [weak] {
        if (const auto self = weak.lock()) self->Pump();
      });
    };
    exchange_ =
        std::make_shared<HttpExchange>(static_cast<size_t>(hub_->options.max_unsent_bytes), wake);
    return HttpReply(exchange_, form);
  }

  void Dispatch() {
    auto message = parser_->release();
    parser_.reset();
    HttpForm form;
    form.is_http_1_1 = message.version() >= 11;
    form.keeps_alive = message.keep_alive() && !hub_->is_stopping && !is_surplus_;
    form.is_head_only = message.method() == http::verb::head;
    HttpRequest request = std::move(head_);
    // Who it is for decides who may ask (RFC 9112, 3.2).
    const bool has_one_host = hosts_ == 1 || (hosts_ == 0 && message.version() < 11);
    request.body = std::move(message.body());
    request.is_local = hub_->is_local;
    request.arrived = std::chrono::steady_clock::now();
    request.body_claim = claim_;
    HttpReply reply = OpenReply(form);
    if (is_surplus_) {
      return SendError(std::move(reply), request, 503, "too many connections; try again later",
                       {{"Retry-After", "1"}});
    }
    if (!has_one_host) {
      return SendError(std::move(reply), request, 400,
                       "the request has no Host header, or more than one");
    }
    WatchErrors();
    WatchInput();
    hub_->handler(std::move(request), std::move(reply));
  }

  // A broken connection announces itself here while an answer is being made.
  void WatchErrors() {
    if (std::exchange(is_watching_errors_, true)) return;
    stream_.socket().async_wait(tcp::socket::wait_error, [self = shared_from_this()](
                                                             error_code error) {
      self->is_watching_errors_ = false;
      if (error || self->is_closed_) return;
      int broken = 0;
      socklen_t size = sizeof(broken);
      ::getsockopt(self->stream_.socket().native_handle(), SOL_SOCKET, SO_ERROR, &broken, &size);
      // Urgent data wakes this too, and is none of our business.
      if (broken != 0) self->Close();
    });
  }

  // Input while an answer is being made is either the next request, which has to wait, or the end
  // of the client's sending side.
  void WatchInput() {
    if (std::exchange(is_watching_input_, true)) return;
    stream_.socket().async_wait(
        tcp::socket::wait_read, [self = shared_from_this()](error_code error) {
          self->is_watching_input_ = false;
          if (error || self->is_closed_ || !self->exchange_) return;
          char byte = 0;
          const ssize_t got =
              ::recv(self->stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
          if (got == 0) return self->ProbeClient();
          if (got < 0 && errno != EAGAIN && errno != EINTR) return self->Close();
          if (got < 0 || self->TakePending()) self->WatchInput();
        });
  }

  // Moves what has come of the next request out of the way of a close that may follow it. False:
  // there is no room for more, and nobody looks behind it.
  bool TakePending() {
    constexpr size_t kPiece = 4096;
    const size_t room = std::min(kPiece, buffer_.max_size() - buffer_.size());
    if (room == 0) return false;
    const auto into = buffer_.prepare(room);
    const ssize_t got =
        ::recv(stream_.socket().native_handle(), into.data(), into.size(), MSG_DONTWAIT);
    buffer_.commit(got > 0 ? static_cast<size_t>(got) : 0);
    return true;
  }

  // TCP tells a client that closed its sending side from one that is gone only when something is
  // sent: the latter's system answers with a reset, which WatchErrors sees. Before an answer
  // begins there is one thing that every HTTP/1.1 client has to ignore: an interim response (RFC
  // 9110, 15.2). Once it has begun its own bytes serve, which whoever makes it may have to be asked
  // for.
  void ProbeClient() {
    Pump();  // an answer that is ready needs no probe before it
    if (is_closed_ || !exchange_) return;
    if (has_sent_) return exchange_->AskForBytes();
    if (is_writing_ || !form_.is_http_1_1) return;
    Write(std::string(kContinue), 0);
  }

  void Pump() {
    if (is_closed_ || is_writing_ || !exchange_) return;
    HttpExchange::Taken taken = exchange_->Take();
    if (!taken.bytes.empty()) {
      has_sent_ = true;
      const size_t size_bytes = taken.bytes.size();
      return Write(std::move(taken.bytes), size_bytes);
    }
    if (taken.is_ended) EndAnswer(taken.keeps_alive);
  }

  // `counted`: how much of `bytes` the exchange counts as unsent.
  void Write(std::string bytes, size_t counted) {
    is_writing_ = true;
    writing_ = std::move(bytes);
    written_ = 0;
    is_counted_ = counted != 0;
    WriteSome();
  }

  void WriteSome() {
    stream_.expires_after(hub_->options.write_timeout);
    stream_.async_write_some(asio::buffer(writing_.data() + written_, writing_.size() - written_),
                             [self = shared_from_this()](error_code error, size_t bytes) {
                               if (self->is_closed_) return;
                               if (error) return self->Close();
                               self->written_ += bytes;
                               if (self->is_counted_) self->exchange_->Sent(bytes);
                               if (self->written_ < self->writing_.size()) return self->WriteSome();
                               self->is_writing_ = false;
                               self->Pump();
                             });
  }

  void EndAnswer(bool keeps_alive) {
    ReleaseBody();
    exchange_->Close();
    exchange_.reset();
    if (hub_->is_stopping) return Close();
    if (keeps_alive) return ReadRequest();
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
    is_idle_ = true;
    stream_.expires_after(kLinger);
    buffer_.clear();
    Discard();
  }

  void Discard() {
    stream_.async_read_some(asio::buffer(discarded_),
                            [self = shared_from_this()](error_code error, size_t) {
                              if (self->is_closed_) return;
                              error ? self->Close() : self->Discard();
                            });
  }

  Hub* const hub_;
  beast::tcp_stream stream_;
  const bool is_surplus_;
  beast::flat_buffer buffer_;  // may hold the beginning of the next request
  std::optional<http::request_parser<http::string_body>> parser_;
  std::shared_ptr<HttpExchange> exchange_;  // while a request is being answered
  HttpForm form_;
  std::string writing_;
  size_t written_ = 0;
  HttpRequest head_;                  // of the request being read, without a body
  size_t hosts_ = 0;                  // its Host headers
  std::shared_ptr<BodyClaim> claim_;  // null: no body
  std::array<char, 16384> discarded_;
  bool is_counted_ = false;
  bool is_writing_ = false;
  bool has_sent_ = false;  // the answer has begun
  bool is_idle_ = true;    // no request, or none that is answered
  bool is_watching_errors_ = false;
  bool is_watching_input_ = false;
  bool is_closed_ = false;
};

Status ValidateOptions(const HttpServerOptions& options) {
  const auto require = [](bool holds, const char* field, const char* range) -> Status {
    if (holds) return {};
    return {ErrorCode::kInvalidArgument,
            "server option '" + std::string(field) + "' must be " + range};
  };
  KVASIR_TRY_OK(require(options.max_header_bytes >= 256 && options.max_header_bytes <= 16 << 20,
                        "max_header_bytes", "256 to 16777216"));
  KVASIR_TRY_OK(require(options.max_body_bytes >= 1, "max_body_bytes", "1 or more"));
  KVASIR_TRY_OK(require(options.max_total_body_bytes >= options.max_body_bytes,
                        "max_total_body_bytes", "max_body_bytes or more"));
  KVASIR_TRY_OK(require(options.max_connections >= 1, "max_connections", "1 or more"));
  KVASIR_TRY_OK(require(options.max_unsent_bytes >= 1, "max_unsent_bytes", "1 or more"));
  return require(options.send_buffer_bytes >= 0, "send_buffer_bytes", "0 or more");
}

Error CannotListen(const HttpServerOptions& options, const error_code& error) {
  const bool is_elsewhere = error != boost::system::errc::address_in_use &&
                            error != boost::system::errc::permission_denied;
  return {ErrorCode::kIo,
          "cannot listen on " + HostAndPort(options.host, options.port) + ": " + error.message() +
              (is_elsewhere ? "; give an address of this machine, or 0.0.0.0 for all"
                            : "; try another port")};
}

// Binds `acceptor`, which does not listen yet.
Status OpenPort(const HttpServerOptions& options, tcp::acceptor& acceptor) {
  error_code error;
  tcp::resolver resolver(acceptor.get_executor());
  const auto found =
      resolver.resolve(options.host, std::to_string(options.port), tcp::resolver::passive, error);
  if (error || found.empty()) return CannotListen(options, error);
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (error) return CannotListen(options, error);
  return {};
}

}  // namespace

class HttpServer::Impl {
 public:
  Impl(HttpServerOptions options, HttpHandler handler) : acceptor_(hub_.io), retry_(hub_.io) {
    hub_.options = std::move(options);
    hub_.handler = std::move(handler);
  }

  Status Listen() {
    KVASIR_TRY_OK(OpenPort(hub_.options, acceptor_));
    error_code error;
    acceptor_.listen(tcp::acceptor::max_listen_connections, error);
    if (error) return CannotListen(hub_.options, error);
    const tcp::endpoint endpoint = acceptor_.local_endpoint(error);
    port_ = endpoint.port();
    hub_.is_local = endpoint.address().is_loopback();
    Accept();
    thread_ = std::thread([this] { hub_.io.run(); });
    return {};
  }

  uint16_t port() const { return port_; }

  void StopAccepting() {
    asio::post(hub_.io, [this] { EndIntake(); });
  }

  void Stop(std::chrono::milliseconds drain) {
    if (!thread_.joinable()) return;
    asio::post(hub_.io, [this, drain] {
      EndIntake();
      hub_.work.reset();
      if (hub_.connections.empty()) return;
      hub_.drain.expires_after(drain);
      hub_.drain.async_wait([this](error_code) { CloseAll(); });
    });
    thread_.join();
  }

 private:
  void Accept() {
    acceptor_.async_accept([this](error_code error, tcp::socket socket) {
      if (hub_.is_stopping || error == asio::error::operation_aborted) return;
      if (error) {
        // Out of file descriptors, say: later some will be free again.
        const auto now = std::chrono::steady_clock::now();
        if (now >= next_warning_) {
          next_warning_ = now + kAcceptWarning;
          Log(hub_.options.log, LogLevel::kWarning,
              "cannot accept connections, trying on: " + error.message());
        }
        retry_.expires_after(kAcceptRetry);
        retry_.async_wait([this](error_code) {
          if (!hub_.is_stopping) Accept();
        });
        return;
      }
      Welcome(std::move(socket));
      Accept();
    });
  }

  void Welcome(tcp::socket socket) {
    const size_t limit = static_cast<size_t>(hub_.options.max_connections);
    if (hub_.connections.size() >= limit + kRefusedConnections) return;
    error_code ignored;
    // Tokens are small and wanted at once.
    socket.set_option(tcp::no_delay(true), ignored);
    if (hub_.options.send_buffer_bytes > 0) {
      socket.set_option(asio::socket_base::send_buffer_size(hub_.options.send_buffer_bytes),
                        ignored);
    }
    const auto connection =
        std::make_shared<Connection>(std::move(socket), &hub_, hub_.connections.size() >= limit);
    hub_.connections.emplace(connection.get(), connection);
    connection->ReadRequest();
  }

  void EndIntake() {
    if (std::exchange(hub_.is_stopping, true)) return;
    error_code ignored;
    acceptor_.close(ignored);
    retry_.cancel();
    for (const auto& connection : Everybody()) connection->EndWhenIdle();
  }

  void CloseAll() {
    for (const auto& connection : Everybody()) connection->Close();
  }

  // A copy: closing changes the list.
  std::vector<std::shared_ptr<Connection>> Everybody() const {
    std::vector<std::shared_ptr<Connection>> all;
    for (const auto& [address, connection] : hub_.connections) all.push_back(connection);
    return all;
  }

  Hub hub_;
  tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  std::chrono::steady_clock::time_point next_warning_{};
  uint16_t port_ = 0;
  std::thread thread_;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

HttpServer::~HttpServer() { Stop(std::chrono::milliseconds(0)); }

Status HttpServer::Check(const HttpServerOptions& options) {
  KVASIR_TRY_OK(ValidateOptions(options));
  asio::io_context io;
  tcp::acceptor acceptor(io);
  return OpenPort(options, acceptor);
}

Result<std::unique_ptr<HttpServer>> HttpServer::Start(HttpServerOptions options,
                                                      HttpHandler handler) {
  KVASIR_TRY_OK(ValidateOptions(options));
  auto impl = std::make_unique<Impl>(std::move(options), std::move(handler));
  KVASIR_TRY_OK(impl->Listen());
  return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
}

uint16_t HttpServer::port() const { return impl_->port(); }
void HttpServer::StopAccepting() { impl_->StopAccepting(); }
void HttpServer::Stop(std::chrono::milliseconds drain) { impl_->Stop(drain); }

}  // namespace kvasir
