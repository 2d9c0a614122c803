// Fuzzes what the HTTP server makes of a connection's bytes: a client says anything, in two pieces,
// and then no more. Deliberately over a real socket: reading, limits, pipelining and the end of a
// connection are one machine.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/server/http_server.h"
#include "kvasir/server/test_client.h"

namespace {

void Answer(kvasir::HttpRequest request, kvasir::HttpReply reply) {
  KVASIR_CHECK(request.body.size() <= 4096);
  if (request.path != "/stream") return reply.Send({.body = request.method + request.body});
  if (!reply.StartStream({})) return;
  (void)reply.WriteNow(request.query);
  reply.Finish();
}

kvasir::HttpServer& TheServer() {
  static const auto server = [] {
    kvasir::HttpServerOptions options;
    options.port = 0;
    options.max_header_bytes = 4096;
    options.max_body_bytes = 4096;
    options.refusal = [](const kvasir::HttpRequest&, int status, std::string message) {
      return kvasir::HttpResponse{.status = status, .body = std::move(message)};
    };
    auto started = kvasir::HttpServer::Start(std::move(options), Answer);
    KVASIR_CHECK(started.ok());
    return *std::move(started);
  }();
  return *server;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  const size_t cut = (data[0] | size_t{data[1]} << 8) % (bytes.size() + 1);
  kvasir::TestClient client(TheServer().port());
  // Where the server has ended the connection, the rest finds nobody.
  if (client.Send(bytes.substr(0, cut))) (void)client.Send(bytes.substr(cut));
  client.HalfClose();
  KVASIR_CHECK(client.ReadToEnd());
  const std::string& answer = client.received();
  if (answer.empty()) return 0;
  KVASIR_CHECK(answer.starts_with("HTTP/1.") && answer.size() > 12);
  const std::string status = answer.substr(9, 3);
  KVASIR_CHECK(status == "100" || status == "200" || status[0] == '4' || status == "501" ||
               status == "503" || status == "505");
  return 0;
}
