// GET /v1/models and /v1/models/{id}: the one model.
// Deliberately not what was echoed: here the model has its real name. One form for the clients of
// OpenAI, Anthropic and llama-server.
#include <array>
#include <ctime>
#include <string>
#include <utility>

#include "kvasir/server/routes.h"

namespace kvasir {
namespace {

std::string Rfc3339(int64_t unix_seconds) {
  const std::time_t time = unix_seconds;
  std::tm parts = {};
  std::array<char, 32> text = {};
  if (gmtime_r(&time, &parts) == nullptr) return "";
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

// The context stands in the two places where clients look for it.
Json ModelJson(const ServerContext& context) {
  const Model& model = context.bundle->model();
  Json meta = Json::Object{{"n_ctx_train", model.context_tokens()},
                           {"n_vocab", model.vocab_size()},
                           {"n_params", model.parameters()},
                           {"size", static_cast<uint64_t>(model.weight_bytes())}};
  return Json::Object{{"id", context.model_name},
                      {"object", "model"},
                      {"created", context.created},
                      {"owned_by", "kvasir"},
                      {"type", "model"},
                      {"display_name", context.model_name},
                      {"created_at", Rfc3339(context.created)},
                      {"max_model_len", model.context_tokens()},
                      {"meta", std::move(meta)}};
}

}  // namespace

void ServeModels(const ServerContext& context, const HttpRequest&, HttpReply reply) {
  const Json list = Json::Object{{"object", "list"},
                                 {"data", Json::Array{ModelJson(context)}},
                                 {"first_id", context.model_name},
                                 {"last_id", context.model_name},
                                 {"has_more", false}};
  reply.Send({.body = list.Dump()});
}

void ServeModel(const ServerContext& context, const HttpRequest& request, HttpReply reply) {
  constexpr std::string_view kBefore = "/models/";
  const std::string_view path = request.path;
  const std::string id = PercentDecoded(path.substr(path.find(kBefore) + kBefore.size()));
  if (id == context.model_name) return reply.Send({.body = ModelJson(context).Dump()});
  reply.Send(ErrorResponse({404,
                            "there is no model '" + id.substr(0, 200) + "'; this server has '" +
                                context.model_name + "'",
                            "model", "model_not_found"}));
}

}  // namespace kvasir
