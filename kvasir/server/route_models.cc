// GET /v1/models and /v1/models/{id}: the one model.
// Deliberately not what was echoed: here the model has its real name.
#include <utility>

#include "kvasir/server/routes.h"

namespace kvasir {
namespace {

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
                      {"max_model_len", model.context_tokens()},
                      {"meta", std::move(meta)}};
}

}  // namespace

void ServeModels(const ServerContext& context, const HttpRequest&, HttpReply reply) {
  const Json list = Json::Object{{"object", "list"}, {"data", Json::Array{ModelJson(context)}}};
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
