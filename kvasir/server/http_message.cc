#include "kvasir/server/http_message.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <ctime>

namespace kvasir {
namespace {

// "Sat, 21 Nov 2026 01:02:03 GMT" (RFC 9110, 5.6.7). Names are ours: strftime follows the locale.
std::string HttpDate(std::time_t seconds) {
  static constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                            "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm time{};
  gmtime_r(&seconds, &time);
  std::array<char, 64> text;
  std::snprintf(text.data(), text.size(), "%s, %02d %s %04d %02d:%02d:%02d GMT",
                kDays[time.tm_wday], time.tm_mday, kMonths[time.tm_mon], time.tm_year + 1900,
                time.tm_hour, time.tm_min, time.tm_sec);
  return text.data();
}

void AppendHeader(std::string_view name, std::string_view value, std::string* head) {
  head->append(name).append(": ").append(value).append("\r\n");
}

char LowerAscii(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

}  // namespace

std::string_view HttpRequest::Header(std::string_view name) const {
  const auto same = [](char a, char b) { return LowerAscii(a) == LowerAscii(b); };
  for (const HttpHeader& header : headers) {
    if (std::equal(name.begin(), name.end(), header.name.begin(), header.name.end(), same)) {
      return header.value;
    }
  }
  return {};
}

std::string_view HttpReason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 413:
      return "Content Too Large";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 503:
      return "Service Unavailable";
  }
  return "";
}

std::string HostAndPort(const std::string& host, int port) {
  const bool is_ipv6 = host.find(':') != std::string::npos;
  std::string place = is_ipv6 ? "[" : "";
  place.append(host).append(is_ipv6 ? "]:" : ":");
  return place.append(std::to_string(port));
}

std::string PercentDecoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view digits = text.substr(std::min(i + 1, text.size()), 2);
    const char* const end = digits.data() + digits.size();
    unsigned value = 0;
    const bool is_escape = text[i] == '%' && digits.size() == 2 &&
                           std::from_chars(digits.data(), end, value, 16).ptr == end;
    decoded += is_escape ? static_cast<char>(value) : text[i];
    i += is_escape ? 2 : 0;
  }
  return decoded;
}

std::string QueryValue(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    if (pair.starts_with(name) && pair.substr(name.size()).starts_with('=')) {
      return PercentDecoded(pair.substr(name.size() + 1));
    }
    query.remove_prefix(std::min(query.size(), pair.size() + 1));
  }
  return "";
}

std::string FormatHead(const HttpResponse& response, std::optional<size_t> body_bytes,
                       const HttpForm& form) {
  std::string head = "HTTP/1.1 " + std::to_string(response.status) + " ";
  head.append(HttpReason(response.status)).append("\r\n");
  AppendHeader("Date", HttpDate(std::time(nullptr)), &head);
  AppendHeader("Server", "kvasir", &head);
  if (!response.content_type.empty()) AppendHeader("Content-Type", response.content_type, &head);
  for (const HttpHeader& header : response.headers) {
    AppendHeader(header.name, header.value, &head);
  }
  // A 204 has no body, and no header that speaks of one (RFC 9110, 8.6).
  if (response.status != 204) {
    if (body_bytes) {
      AppendHeader("Content-Length", std::to_string(*body_bytes), &head);
    } else if (form.is_http_1_1) {
      AppendHeader("Transfer-Encoding", "chunked", &head);
    }
  }
  AppendHeader("Connection", form.keeps_alive ? "keep-alive" : "close", &head);
  return head + "\r\n";
}

std::string FormatChunk(std::string_view data) {
  std::array<char, 24> size;
  std::snprintf(size.data(), size.size(), "%zx\r\n", data.size());
  std::string chunk = size.data();
  chunk.reserve(chunk.size() + data.size() + 2);
  return chunk.append(data).append("\r\n");
}

}  // namespace kvasir
