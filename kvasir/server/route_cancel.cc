// DELETE /v1/chat/completions/{id} and its likes: ends an answer that is being made.
// Deliberately nothing to delete besides: answers are not stored.
#include <algorithm>
#include <iterator>

#include "kvasir/server/access.h"
#include "kvasir/server/routes.h"

namespace kvasir {
namespace {

struct Kind {
  std::string_view in_path;
  std::string_view id_prefix;
  std::string_view deleted;  // how the API calls what was
};
constexpr Kind kKinds[] = {{"/chat/", "chatcmpl-", "chat.completion.deleted"},
                           {"/responses/", "resp_", "response.deleted"},
                           {"/messages/", "msg_", "message_deleted"},
                           {"/completions/", "cmpl-", "text_completion.deleted"}};

const Kind& KindOf(std::string_view path) {
  return *std::find_if(std::begin(kKinds), std::end(kKinds) - 1,
                       [&](const Kind& kind) { return path.find(kind.in_path) != path.npos; });
}

}  // namespace

void ServeCancel(const ServerContext& context, const HttpRequest& request, HttpReply reply) {
  const std::string id = request.path.substr(request.path.rfind('/') + 1);
  const Kind& kind = KindOf(request.path);
  const uint64_t tenant = CacheSalt(request, context.separates_keys, "");
  if (!id.starts_with(kind.id_prefix) || !context.running->Cancel(id, tenant)) {
    const bool is_anthropic = request.path.find("/messages/") != std::string::npos;
    return reply.Send(ErrorResponse(
        {404, "no answer '" + id.substr(0, 200) + "' is being made; it may have ended", "id",
         "not_found"},
        is_anthropic ? ErrorStyle::kAnthropic : ErrorStyle::kOpenAi));
  }
  const Json answer = Json::Object{{"id", id}, {"object", kind.deleted}, {"deleted", true}};
  reply.Send({.body = answer.Dump()});
}

}  // namespace kvasir
