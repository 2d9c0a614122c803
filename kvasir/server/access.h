// Access: who may ask, and which web pages may read the answers.
// Deliberately no users and no roles: any of the keys opens everything.
#ifndef KVASIR_SERVER_ACCESS_H_
#define KVASIR_SERVER_ACCESS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/server/http_message.h"

namespace kvasir {

struct AccessOptions {
  std::vector<std::string> api_keys;      // empty: everybody may ask
  std::vector<std::string> cors_origins;  // "https://app.example", or "*"; empty: no web page
  // Names that requests may have in Host, beside localhost and addresses, or "*"; looked at only if
  // the server listens to this machine alone.
  std::vector<std::string> allowed_hosts;
};

// Without keys a browser on this machine could be made to ask for a page of somebody else: by a
// name that suddenly means 127.0.0.1 (DNS rebinding), which the page may then read, or by a form,
// which it cannot read but which works. Why the request is refused for that; empty: it is not.
std::string RefusalOfPage(const AccessOptions& options, const HttpRequest& request);

// Equal, in a time that depends on the lengths only.
bool EqualsInConstantTime(std::string_view a, std::string_view b);

// Whether "Authorization: Bearer KEY" or "x-api-key: KEY" has one of the keys.
bool HasKey(const AccessOptions& options, const HttpRequest& request);

// Whether it has any, right or wrong.
bool BringsKey(const HttpRequest& request);

// Who may share cached prefixes with this request: those with the same `salt` and, if that matters
// here, the same key. 0: those with neither. With an empty `salt`: the key's alone, which is whose
// slots these are.
uint64_t CacheSalt(const HttpRequest& request, bool separates_keys, std::string_view salt);

// The headers that let the page which sent the request read the answer; none for a page that may
// not, and for requests that no page sent. Of a preflight (OPTIONS) also what it asks for.
std::vector<HttpHeader> CorsHeaders(const AccessOptions& options, const HttpRequest& request,
                                    std::string_view methods);

}  // namespace kvasir

#endif  // KVASIR_SERVER_ACCESS_H_
