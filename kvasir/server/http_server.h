// HttpServer: HTTP/1.1 over TCP: connections, limits, timeouts, and who is still there.
// Deliberately without routes and without TLS. The library behind it (Boost.Beast) is seen by
// http_server.cc only.
#ifndef KVASIR_SERVER_HTTP_SERVER_H_
#define KVASIR_SERVER_HTTP_SERVER_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "kvasir/base/log.h"
#include "kvasir/base/result.h"
#include "kvasir/server/http_message.h"
#include "kvasir/server/http_reply.h"

namespace kvasir {

struct HttpServerOptions {
  // An address or a name that resolves to one: this machine only; 0.0.0.0: everybody.
  std::string host = "127.0.0.1";
  uint16_t port = 8080;                 // 0: any free one
  int64_t max_header_bytes = 64 << 10;  // more is 431
  int64_t max_body_bytes = 16 << 20;    // more is 413
  int64_t max_connections = 256;        // requests on further ones get 503
  // Bodies of all requests that are being answered, and what has come of those that are being
  // read. A request that would go beyond gets 503.
  int64_t max_total_body_bytes = 128 << 20;
  // Unsent bytes of one response beyond which its producer waits.
  int64_t max_unsent_bytes = 256 << 10;
  // The system's send buffer per connection. 0: as the system decides (it may grow to megabytes).
  int send_buffer_bytes = 0;
  // From the end of one request until the header of the next one is complete.
  std::chrono::milliseconds idle_timeout{75'000};
  std::chrono::milliseconds body_timeout{120'000};   // until the whole body has come
  std::chrono::milliseconds write_timeout{120'000};  // without the client taking a single byte
  // What the server answers where it refuses a request itself; unset: no body. `head` has no
  // body, and is empty as far as the request's header could not be read.
  std::function<HttpResponse(const HttpRequest& head, int status, std::string message)> refusal;
  LogSink log;
};

// Called on the I/O thread for every request: must not wait. Every request gets its reply sent in
// the order of requests, also when they are pipelined: the next one is read once this one is
// answered.
using HttpHandler = std::function<void(HttpRequest request, HttpReply reply)>;

class HttpServer {
 public:
  // Whether Start would do now: what is wrong, or where somebody listens already, is said before
  // anything else is begun. ERRORS: as Start.
  static Status Check(const HttpServerOptions& options);
  // Listens and serves until Stop. ERRORS: kInvalidArgument for limits that cannot be, kIo naming
  // host and port.
  static Result<std::unique_ptr<HttpServer>> Start(HttpServerOptions options, HttpHandler handler);
  ~HttpServer();

  uint16_t port() const;

  // No new connections, no further requests on those there are; running ones go on.
  void StopAccepting();
  // Sends what has been answered, for at most `drain`, then closes every connection: producers
  // then see that their client is gone. Waits for the I/O thread. Idempotent.
  void Stop(std::chrono::milliseconds drain);

 private:
  class Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_HTTP_SERVER_H_
