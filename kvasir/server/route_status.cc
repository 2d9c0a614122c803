// GET /props, /slots and /metrics: what the server is and what it is doing.
// Deliberately without anybody's text: counts and sizes only.
#include <algorithm>
#include <memory>
#include <utility>

#include "kvasir/engine/engine_picture.h"
#include "kvasir/server/routes.h"

namespace kvasir {
namespace {

Json SamplingJson(const SamplingOptions& sampling) {
  return Json::Object{{"temperature", sampling.temperature},
                      {"top_k", sampling.top_k},
                      {"top_p", sampling.top_p},
                      {"min_p", sampling.min_p},
                      {"repeat_penalty", sampling.repetition_penalty}};
}

Json SlotJson(const ServerContext& context, const SlotStatus& slot, size_t id) {
  const int64_t left = std::max<int64_t>(slot.max_tokens - slot.generated_tokens, 0);
  Json next = Json::Object{{"has_next_token", slot.is_processing},
                           {"n_remain", slot.is_processing ? left : 0},
                           {"n_decoded", slot.generated_tokens}};
  return Json::Object{
      {"id", static_cast<uint64_t>(id)},       {"n_ctx", context.bundle->model().context_tokens()},
      {"speculative", context.has_drafts},     {"is_processing", slot.is_processing},
      {"n_prompt_tokens", slot.prompt_tokens}, {"n_prompt_tokens_cache", slot.cached_tokens},
      {"next_token", std::move(next)}};
}

Json SpecialToken(const ServerContext& context, std::string_view name) {
  const ChatTemplateSet* const chat = context.bundle->chat();
  const Json* const token = chat == nullptr ? nullptr : chat->special_tokens().Find(name);
  return token == nullptr ? Json("") : *token;
}

}  // namespace

void ServeProps(const ServerContext& context, const HttpRequest&, HttpReply reply) {
  Json generation = Json::Object{{"n_ctx", context.bundle->model().context_tokens()},
                                 {"params", SamplingJson(context.defaults.sampling)}};
  const Json props =
      Json::Object{{"default_generation_settings", std::move(generation)},
                   {"total_slots", static_cast<uint64_t>(context.service->status().slots.size())},
                   {"model_alias", context.model_name},
                   {"modalities", Json::Object{{"vision", false}, {"audio", false}}},
                   {"bos_token", SpecialToken(context, "bos_token")},
                   {"eos_token", SpecialToken(context, "eos_token")},
                   {"cache", context.bundle->DescribeCache()},
                   {"drafts", context.drafts},
                   {"build_info", "kvasir"},
                   {"is_sleeping", false}};
  reply.Send({.body = props.Dump()});
}

void ServeSlots(const ServerContext& context, const HttpRequest& request, HttpReply reply) {
  const ServiceStatus status = context.service->status();
  Json::Array slots;
  bool is_any_free = false;
  for (const SlotStatus& slot : status.slots) {
    slots.push_back(SlotJson(context, slot, slots.size()));
    is_any_free = is_any_free || !slot.is_processing;
  }
  if (QueryValue(request.query, "fail_on_no_slot") == "1" && !is_any_free) {
    return reply.Send(ErrorResponse({503, "no slot is free", "", ""}));
  }
  reply.Send({.body = Json(std::move(slots)).Dump()});
}

void ServeMetrics(const ServerContext& context, const HttpRequest&, HttpReply reply) {
  // What blocks are for is known to the engine's thread only.
  const auto shared = std::make_shared<HttpReply>(std::move(reply));
  context.service->Picture([&context, shared](std::shared_ptr<const EnginePicture> picture) {
    context.post([&context, shared, picture = std::move(picture)] {
      shared->Send({.content_type = "text/plain; version=0.0.4; charset=utf-8",
                    .headers = {},
                    .body = context.metrics->Render(context.service->status(), *picture)});
    });
  });
}

}  // namespace kvasir
