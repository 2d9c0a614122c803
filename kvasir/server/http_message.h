// HTTP messages as the routes see them, and how a response's head is written.
// Deliberately without sockets and without parsing: that is http_server.
#ifndef KVASIR_SERVER_HTTP_MESSAGE_H_
#define KVASIR_SERVER_HTTP_MESSAGE_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvasir {

struct HttpHeader {
  std::string name;
  std::string value;
};

struct HttpRequest {
  std::string method;  // "GET", as written by the client
  std::string path;    // without the query
  std::string query;   // without the "?"
  std::vector<HttpHeader> headers;
  std::string body;
  bool is_local = false;  // the server listens on a loopback address, to this machine alone
  std::chrono::steady_clock::time_point arrived;  // when all of it was there
  std::shared_ptr<void> body_claim;  // the room that the body takes, as long as somebody has it

  // The value of the first header of this name, whatever its case; empty if there is none.
  std::string_view Header(std::string_view name) const;
};

// As they stand in a URL: "localhost:80", "[::1]:80".
std::string HostAndPort(const std::string& host, int port);
// "a%2Fb" -> "a/b"; what is no escape stays as it is.
std::string PercentDecoded(std::string_view text);
// The value of `name` in "a=1&b=2", decoded; empty if it is not there.
std::string QueryValue(std::string_view query, std::string_view name);

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";  // empty: no body, no header
  std::vector<HttpHeader> headers;
  std::string body;
};

// What the request decides about the form of its response.
struct HttpForm {
  bool is_http_1_1 = true;    // may be chunked, and may be told 100 Continue
  bool keeps_alive = true;    // another request may follow on the connection
  bool is_head_only = false;  // a HEAD request: headers as for GET, no body
};

// "OK", "Not Found", ...; empty for a status this server never sends.
std::string_view HttpReason(int status);

// Status line and headers with the blank line. `body_bytes` unset: the length is not known; the
// body is then chunked on HTTP/1.1 and ends with the connection on HTTP/1.0.
std::string FormatHead(const HttpResponse& response, std::optional<size_t> body_bytes,
                       const HttpForm& form);

// One chunk of the chunked coding (RFC 9112, 7.1). REQUIRES: data not empty (that ends a body).
std::string FormatChunk(std::string_view data);

}  // namespace kvasir

#endif  // KVASIR_SERVER_HTTP_MESSAGE_H_
