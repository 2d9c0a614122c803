#include "kvasir/server/access.h"

#include <algorithm>
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

std::string_view GivenKey(const HttpRequest& request) {
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view given = request.Header("Authorization");
  return given.starts_with(kBearer) ? given.substr(kBearer.size()) : request.Header("x-api-key");
}

}  // namespace

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

std::vector<HttpHeader> CorsHeaders(const AccessOptions& options, const HttpRequest& request,
                                    std::string_view methods) {
  const std::string_view origin = request.Header("Origin");
  if (origin.empty() || options.cors_origins.empty()) return {};
  const bool is_allowed =
      std::any_of(options.cors_origins.begin(), options.cors_origins.end(),
                  [&](const std::string& allowed) { return allowed == "*" || allowed == origin; });
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
