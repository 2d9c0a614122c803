// DELETE /v1/chat/completions/{id} and its likes: ends an answer that is being made.
// Deliberately nothing to delete besides: answers are not stored.
#include "kvasir/server/routes.h"

namespace kvasir {
namespace {

// How OpenAI calls what was deleted, by the route's last part.
std::string_view ObjectOf(std::string_view path) {
  if (path.find("/chat/") != path.npos) return "chat.completion.deleted";
  if (path.find("/responses/") != path.npos) return "response.deleted";
  if (path.find("/messages/") != path.npos) return "message_deleted";
  return "text_completion.deleted";
}

}  // namespace

void ServeCancel(const ServerContext& context, const HttpRequest& request, HttpReply reply) {
  const std::string id = request.path.substr(request.path.rfind('/') + 1);
  if (!context.running->Cancel(id)) {
    const bool is_anthropic = request.path.find("/messages/") != std::string::npos;
    return reply.Send(ErrorResponse(
        {404, "no answer '" + id.substr(0, 200) + "' is being made; it may have ended", "id",
         "not_found"},
        is_anthropic ? ErrorStyle::kAnthropic : ErrorStyle::kOpenAi));
  }
  const Json answer =
      Json::Object{{"id", id}, {"object", ObjectOf(request.path)}, {"deleted", true}};
  reply.Send({.body = answer.Dump()});
}

}  // namespace kvasir
