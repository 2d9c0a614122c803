// GET / and /web/...: the page that chats and shows the cache.
// Deliberately without data: the page asks the API for it, as any other client does.
#include <algorithm>
#include <string>
#include <utility>

#include "kvasir/server/routes.h"
#include "kvasir/server/web_files.h"

namespace kvasir {
namespace {

std::string_view TypeOf(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  return "text/javascript; charset=utf-8";
}

// Nothing from anywhere else, no script but the page's own files, and none made from text: what a
// model writes stays text even if the page had a mistake.
constexpr std::string_view kPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'";

}  // namespace

void ServeWeb(const ServerContext& context, const HttpRequest& request, HttpReply reply) {
  constexpr std::string_view kFolder = "/web/";
  const size_t folder = request.path.rfind(kFolder);
  const std::string_view name =
      folder == std::string::npos ? std::string_view("index.html")
                                  : std::string_view(request.path).substr(folder + kFolder.size());
  const auto files = WebFiles();
  const auto file = std::find_if(files.begin(), files.end(),
                                 [&](const EmbeddedFile& known) { return known.name == name; });
  if (!context.has_web_page || file == files.end()) {
    return reply.Send(
        ErrorResponse({404,
                       context.has_web_page ? "the web page has no such file"
                                            : "this server was started without its web page",
                       "", "not_found"}));
  }
  // No version in the names, so a browser has to ask again.
  reply.Send({.content_type = std::string(TypeOf(name)),
              .headers = {{"Cache-Control", "no-cache"},
                          {"Content-Security-Policy", std::string(kPolicy)},
                          {"Referrer-Policy", "no-referrer"},
                          {"X-Content-Type-Options", "nosniff"}},
              .body = std::string(file->bytes)});
}

}  // namespace kvasir
