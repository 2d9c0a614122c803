#include "kvasir/server/embeddings_format.h"

#include <bit>
#include <utility>

#include "kvasir/base/base64.h"
#include "kvasir/engine/hidden_pool.h"

namespace kvasir {

static_assert(std::endian::native == std::endian::little, "floats are sent as they lie in memory");

Json EmbeddingsFormat::EmbeddingJson(std::vector<float> embedding) const {
  if (options_.dimensions) {
    embedding.resize(static_cast<size_t>(*options_.dimensions));
    NormalizeLength(&embedding);
  }
  if (options_.is_base64) return Base64(std::as_bytes(std::span<const float>(embedding)));
  Json::Array values;
  values.reserve(embedding.size());
  for (const float value : embedding) values.push_back(static_cast<double>(value));
  return values;
}

Json EmbeddingsFormat::Whole(std::span<const AnsweredChoice> results) {
  Json::Array data;
  for (const AnsweredChoice& result : results) {
    Json embedding = EmbeddingJson(result.embedding);
    if (options_.is_llama_server) embedding = Json::Array{std::move(embedding)};
    Json entry = options_.is_llama_server ? Json::Object{} : Json::Object{{"object", "embedding"}};
    entry.Set("index", static_cast<uint64_t>(data.size()));
    entry.Set("embedding", std::move(embedding));
    data.push_back(std::move(entry));
  }
  if (options_.is_llama_server) return data;
  const GenerationStats total = TotalStats(results, 1);
  Json usage =
      Json::Object{{"prompt_tokens", total.prompt_tokens},
                   {"total_tokens", total.prompt_tokens},
                   {"prompt_tokens_details", Json::Object{{"cached_tokens", total.cached_tokens}}}};
  return Json::Object{{"object", "list"},
                      {"data", std::move(data)},
                      {"model", options_.head.model},
                      {"usage", std::move(usage)}};
}

}  // namespace kvasir
