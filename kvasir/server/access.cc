#include "kvasir/server/access.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cctype>
#include <span>

#include "kvasir/base/checksum.h"

namespace kvasir {

bool EqualsInConstantTime(std::string_view a, std::string_view b) {
  if (a.empty() || b.empty()) return a.size() == b.size();
  // Volatile: every byte is looked at, whatever the ones before said.
  volatile unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    difference = difference | static_cast<unsigned char>(a[i] ^ b[i % b.size()]);
  }
  return difference == 0;
}

namespace {

char LowerAscii(char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); }

std::string_view GivenKey(const HttpRequest& request) {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view given = request.Header("Authorization");
  // The name of the scheme has no case (RFC 9110, 11.1).
  const std::string_view scheme = given.substr(0, kBearer.size());
  const bool is_bearer = std::equal(scheme.begin(), scheme.end(), kBearer.begin(), kBearer.end(),
                                    [](char a, char b) { return LowerAscii(a) == LowerAscii(b); });
  if (!is_bearer) return request.Header("x-api-key");
  const size_t begin = given.find_first_not_of(' ', kBearer.size());
  return begin == given.npos ? std::string_view() : given.substr(begin);
}

bool Contains(const std::vector<std::string>& list, std::string_view wanted) {
  return std::any_of(list.begin(), list.end(),
                     [&](const std::string& listed) { return listed == "*" || listed == wanted; });
}

// "Name:8080" -> "name", "[::1]:8080" -> "::1"; empty where it is neither.
std::string HostName(std::string_view authority) {
  std::string name(authority);
  for (char& c : name) c = LowerAscii(c);
  size_t begin = 0;
  size_t end = std::min(name.find(':'), name.size());
  size_t rest = end;
  if (name.starts_with('[')) {
    begin = 1;
    end = std::min(name.find(']'), name.size());
    rest = std::min(end + 1, name.size());
  }
  // Behind it there is a port or nothing.
  const bool is_plain =
      rest == name.size() ||
      (name[rest] == ':' && std::all_of(name.begin() + static_cast<ptrdiff_t>(rest) + 1, name.end(),
                                        [](char c) { return c >= '0' && c <= '9'; }));
  const std::string host = name.substr(begin, end - begin);
  constexpr std::string_view kOfNames = "abcdefghijklmnopqrstuvwxyz0123456789.-_:*";
  return is_plain && host.find_first_not_of(kOfNames) == host.npos ? host : "";
}

// Names of hosts have no case.
bool IsAllowedHost(const std::vector<std::string>& allowed, const std::string& name) {
  return std::any_of(allowed.begin(), allowed.end(), [&](const std::string& listed) {
    return listed == "*" || (!name.empty() && HostName(listed) == name);
  });
}

bool IsAddress(const std::string& name) {
  in6_addr address;
  return inet_pton(AF_INET, name.c_str(), &address) == 1 ||
         inet_pton(AF_INET6, name.c_str(), &address) == 1;
}

// The page is one of this server's own.
bool IsSameOrigin(std::string_view origin, std::string_view host) {
  const size_t scheme_end = origin.find("://");
  return scheme_end != std::string_view::npos && origin.substr(scheme_end + 3) == host;
}

}  // namespace

std::string RefusalOfPage(const AccessOptions& options, const HttpRequest& request) {
  if (!options.api_keys.empty()) return "";
  const std::string_view host = request.Header("Host");
  const std::string name = HostName(host);
  if (request.is_local && !host.empty() && name != "localhost" && !name.ends_with(".localhost") &&
      !IsAddress(name) && !IsAllowedHost(options.allowed_hosts, name)) {
    return "this server does not answer to the name '" + std::string(host.substr(0, 200)) +
           "': ask for localhost, or start it with --allowed-host or --api-key";
  }
  const std::string_view origin = request.Header("Origin");
  const bool acts = request.method == "POST" || request.method == "DELETE";
  if (acts && !origin.empty() && !IsSameOrigin(origin, host) &&
      !Contains(options.cors_origins, origin)) {
    return "pages of '" + std::string(origin.substr(0, 200)) +
           "' may not use this server: start it with --cors-origin or --api-key";
  }
  return "";
}

uint64_t CacheSalt(const HttpRequest& request, bool separates_keys, std::string_view salt) {
  const std::string_view key = separates_keys ? GivenKey(request) : std::string_view();
  if (key.empty() && salt.empty()) return 0;
  // The length keeps key and salt apart.
  const std::string both = std::to_string(key.size()) + ":" + std::string(key) + std::string(salt);
  return Checksum64(std::as_bytes(std::span(both)));
}

bool HasKey(const AccessOptions& options, const HttpRequest& request) {
  if (options.api_keys.empty()) return true;
  const std::string_view given = GivenKey(request);
  bool is_known = false;
  for (const std::string& key : options.api_keys) {
    is_known = EqualsInConstantTime(given, key) || is_known;
  }
  return is_known;
}

bool BringsKey(const HttpRequest& request) { return !GivenKey(request).empty(); }

std::vector<HttpHeader> CorsHeaders(const AccessOptions& options, const HttpRequest& request,
                                    std::string_view methods) {
  const std::string_view origin = request.Header("Origin");
  if (origin.empty() || options.cors_origins.empty()) return {};
  const bool is_allowed = Contains(options.cors_origins, origin);
  // Caches must not give one page the answer for another.
  std::vector<HttpHeader> headers = {{"Vary", "Origin"}};
  if (!is_allowed) return headers;
  headers.push_back({"Access-Control-Allow-Origin", std::string(origin)});
  if (request.method == "OPTIONS") {
    const std::string_view wanted = request.Header("Access-Control-Request-Headers");
    headers.push_back({"Access-Control-Allow-Methods", std::string(methods)});
    if (!wanted.empty()) headers.push_back({"Access-Control-Allow-Headers", std::string(wanted)});
    headers.push_back({"Access-Control-Max-Age", "600"});
  }
  return headers;
}

}  // namespace kvasir
