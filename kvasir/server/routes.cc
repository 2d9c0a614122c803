#include "kvasir/server/routes.h"

#include <array>

namespace kvasir {
namespace {

constexpr std::string_view kGet = "GET, HEAD, OPTIONS";
constexpr std::string_view kPost = "POST, OPTIONS";
constexpr std::string_view kDelete = "DELETE, OPTIONS";
constexpr auto kAnthropic = ErrorStyle::kAnthropic;

constexpr std::array kRoutes = {
    Route{"/health", kGet, ServeHealth, RouteAccess::kForAll},
    Route{"/", kGet, ServeWeb, RouteAccess::kForAll},
    Route{"/web/", kGet, ServeWeb, RouteAccess::kForAll},
    Route{"/cache", kGet, ServeCache},
    Route{"/models", kGet, ServeModels},
    Route{"/models/", kGet, ServeModel},
    Route{"/props", kGet, ServeProps},
    Route{"/slots", kGet, ServeSlots},
    Route{"/slots/", kPost, ServeSlotAction},
    Route{"/metrics", kGet, ServeMetrics},
    Route{"/tokenize", kPost, ServeTokenize},
    Route{"/detokenize", kPost, ServeDetokenize},
    Route{"/apply-template", kPost, ServeApplyTemplate},
    Route{"/chat/completions", kPost, ServeChat},
    Route{"/completions", kPost, ServeText},
    Route{"/responses", kPost, ServeResponses},
    Route{"/responses/input_tokens", kPost, ServeResponseTokens},
    Route{"/embeddings", kPost, ServeEmbeddings},
    Route{"/embedding", kPost, ServeEmbedding},
    Route{"/messages", kPost, ServeMessages, RouteAccess::kWithKey, kAnthropic},
    Route{"/messages/count_tokens", kPost, ServeCountTokens, RouteAccess::kWithKey, kAnthropic},
    Route{"/chat/completions/", kDelete, ServeCancel},
    Route{"/completions/", kDelete, ServeCancel},
    Route{"/responses/", kDelete, ServeCancel},
    Route{"/messages/", kDelete, ServeCancel, RouteAccess::kWithKey, kAnthropic},
};

}  // namespace

const Route* FindRoute(std::string_view path) {
  constexpr std::string_view kVersion = "/v1";
  if (path.starts_with("/v1/")) path.remove_prefix(kVersion.size());
  // "/completions/" is no answer without an id, but the route before it.
  if (path.size() > 1 && path.ends_with('/') && path != "/web/") path.remove_suffix(1);
  for (const Route& route : kRoutes) {
    if (path == route.path) return &route;
    if (route.path.size() > 1 && route.path.ends_with('/') && path.starts_with(route.path))
      return &route;
  }
  return nullptr;
}

void ServeHealth(const ServerContext&, const HttpRequest&, HttpReply reply) {
  reply.Send({.body = R"({"status":"ok"})"});
}

}  // namespace kvasir
