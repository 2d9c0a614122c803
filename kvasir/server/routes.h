// The routes: which path means what, and who answers.
// Deliberately an explicit list; the handlers are one per file, route_*.cc.
#ifndef KVASIR_SERVER_ROUTES_H_
#define KVASIR_SERVER_ROUTES_H_

#include <string_view>

#include "kvasir/server/api_error.h"
#include "kvasir/server/http_message.h"
#include "kvasir/server/http_reply.h"
#include "kvasir/server/server_context.h"

namespace kvasir {

// Answers, now or later. POST handlers run on the work thread, of long bodies on another, others on
// the I/O thread, where they must not wait.
using RouteHandler = void (*)(const ServerContext& context, const HttpRequest& request,
                              HttpReply reply);

enum class RouteAccess { kWithKey, kForAll };

struct Route {
  std::string_view path;     // one that ends with '/', "/" aside, stands for all below it too
  std::string_view methods;  // for the Allow header
  RouteHandler handler;
  RouteAccess access = RouteAccess::kWithKey;
  ErrorStyle error_style = ErrorStyle::kOpenAi;

  bool is_get() const { return methods.starts_with("GET"); }
  // `method`: not OPTIONS, which every route takes.
  bool Takes(std::string_view method) const {
    return methods.substr(0, methods.find(',')) == method || (is_get() && method == "HEAD");
  }
};

// Every path is also there with "/v1" before it, where clients expect it. nullptr: none.
const Route* FindRoute(std::string_view path);

void ServeHealth(const ServerContext& context, const HttpRequest& request, HttpReply reply);
void ServeModels(const ServerContext& context, const HttpRequest& request, HttpReply reply);
void ServeModel(const ServerContext& context, const HttpRequest& request, HttpReply reply);
void ServeProps(const ServerContext& context, const HttpRequest& request, HttpReply reply);
void ServeSlots(const ServerContext& context, const HttpRequest& request, HttpReply reply);
void ServeSlotAction(const ServerContext& context, const HttpRequest& request, HttpReply reply);
void ServeMetrics(const ServerContext& context, const HttpRequest& request, HttpReply reply);
void ServeCache(const ServerContext& context, const HttpRequest& request, HttpReply reply);
void ServeWeb(const ServerContext& context, const HttpRequest& request, HttpReply reply);
void ServeTokenize(const ServerContext& context, const HttpRequest& request, HttpReply reply);
void ServeDetokenize(const ServerContext& context, const HttpRequest& request, HttpReply reply);
void ServeApplyTemplate(const ServerContext& context, const HttpRequest& request, HttpReply reply);
void ServeChat(const ServerContext& context, const HttpRequest& request, HttpReply reply);
void ServeText(const ServerContext& context, const HttpRequest& request, HttpReply reply);
void ServeMessages(const ServerContext& context, const HttpRequest& request, HttpReply reply);
void ServeCountTokens(const ServerContext& context, const HttpRequest& request, HttpReply reply);
void ServeEmbeddings(const ServerContext& context, const HttpRequest& request, HttpReply reply);
void ServeEmbedding(const ServerContext& context, const HttpRequest& request, HttpReply reply);
void ServeCancel(const ServerContext& context, const HttpRequest& request, HttpReply reply);
void ServeResponses(const ServerContext& context, const HttpRequest& request, HttpReply reply);
void ServeResponseTokens(const ServerContext& context, const HttpRequest& request, HttpReply reply);

}  // namespace kvasir

#endif  // KVASIR_SERVER_ROUTES_H_
