// GET /cache: what the cache holds and who shares it, for the picture on the web page.
// Deliberately only structure: neither tokens nor salts, so nothing of what was said.
#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "kvasir/engine/engine_picture.h"
#include "kvasir/server/routes.h"

namespace kvasir {
namespace {

Json RunJson(const CachePicture::Run& run) {
  return Json::Object{{"first_block", run.first_block},
                      {"blocks", run.blocks},
                      {"shared_by", run.shared_by},
                      {"codec", run.codec},
                      {"tier", run.in_use ? "live" : "cached"},
                      {"id", static_cast<int64_t>(run.id)}};
}

Json SequenceJson(const CachePicture::Sequence& sequence) {
  Json::Array kinds;
  for (const auto& runs : sequence.runs) {
    Json::Array list;
    for (const CachePicture::Run& run : runs) list.push_back(RunJson(run));
    kinds.push_back(std::move(list));
  }
  // A request and a node of the prefix tree may have the same number.
  std::string name = sequence.is_running ? "r" : "c";
  name += std::to_string(sequence.id);
  return Json::Object{{"id", std::move(name)},
                      {"state", sequence.is_running ? "live" : "cached"},
                      {"tokens", sequence.tokens},
                      {"bytes", sequence.bytes},
                      {"exclusive_bytes", sequence.exclusive_bytes},
                      {"runs", std::move(kinds)}};
}

Json KindJson(const CachePicture::LayerKind& kind) {
  Json::Array layers;
  for (const int layer : kind.layers) layers.push_back(layer);
  return Json::Object{{"name", kind.name}, {"layers", std::move(layers)}};
}

Json BytesJson(const EnginePicture& picture) {
  const size_t used = picture.stats.used_bytes;
  return Json::Object{{"budget", picture.budget_bytes},
                      {"live", picture.live_bytes},
                      {"cached", used - std::min(picture.live_bytes, used)},
                      {"free", picture.budget_bytes - std::min(used, picture.budget_bytes)},
                      {"reserved", picture.reserved_bytes},
                      {"scratch", picture.stats.scratch_bytes}};
}

Json CountersJson(const EngineStats& stats) {
  return Json::Object{{"steps", stats.steps},
                      {"evaluated_tokens", stats.evaluated_tokens},
                      {"generated_tokens", stats.generated_tokens},
                      {"prompt_tokens", stats.prompt_tokens},
                      {"cached_tokens", stats.cached_tokens},
                      {"preemptions", stats.preemptions}};
}

std::string PictureJson(const ServerContext& context, const EnginePicture& picture) {
  Json::Array kinds;
  for (const auto& kind : picture.cache.kinds) kinds.push_back(KindJson(kind));
  Json::Array codecs;
  for (const std::string& codec : picture.cache.codecs) codecs.push_back(codec);
  Json::Array sequences;
  for (const auto& sequence : picture.cache.sequences) sequences.push_back(SequenceJson(sequence));
  const std::chrono::duration<double, std::milli> at = picture.made_at - context.started;
  Json requests = Json::Object{{"running", picture.stats.running_requests},
                               {"waiting", picture.stats.waiting_requests},
                               {"streams", picture.stats.active_streams}};
  return Json(Json::Object{{"at_ms", at.count()},
                           {"block_tokens", kBlockTokens},
                           {"bytes", BytesJson(picture)},
                           {"counters", CountersJson(picture.stats)},
                           {"requests", std::move(requests)},
                           {"codecs", std::move(codecs)},
                           {"kinds", std::move(kinds)},
                           {"sequences", std::move(sequences)},
                           {"left_out", picture.cache.left_out}})
      .Dump();
}

}  // namespace

void ServeCache(const ServerContext& context, const HttpRequest&, HttpReply reply) {
  // std::function wants what can be copied, and a reply cannot.
  const auto shared = std::make_shared<HttpReply>(std::move(reply));
  context.service->Picture([&context, shared](std::shared_ptr<const EnginePicture> picture) {
    // Printing it is not the engine's work.
    context.post([&context, shared, picture = std::move(picture)] {
      shared->Send(
          {.headers = {{"Cache-Control", "no-store"}}, .body = PictureJson(context, *picture)});
    });
  });
}

}  // namespace kvasir
