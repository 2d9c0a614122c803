#include "kvasir/formats/gguf_llama_kin.h"

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/formats/config_limits.h"
#include "kvasir/formats/gguf_rope.h"

namespace kvasir {
namespace {

Result<Json> Divisors(const GgufFile& file, std::string_view name, int64_t pairs) {
  KVASIR_TRY(const WeightTensor tensor, file.Get(std::string(name), {pairs}));
  std::vector<float> divisors(static_cast<size_t>(pairs));
  tensor.read_row(0, divisors.data());
  Json list = Json::Array();
  for (const float divisor : divisors) list.Append(static_cast<double>(divisor));
  return list;
}

// Only the class of hybrid models can say so.
Status SetGraniteWithoutRope(const GgufKeys& keys, Json* config) {
  KVASIR_TRY(const int64_t layers, config->GetInt("num_hidden_layers"));
  if (layers < 1 || layers > kMaxLayers) return {};  // as every config's, checked elsewhere
  config->Set("architectures", Json::Array{Json("GraniteMoeHybridForCausalLM")});
  config->Set("model_type", "granitemoehybrid");
  config->Set("layer_types", Json::Array(static_cast<size_t>(layers), Json("attention")));
  config->Set("position_embedding_type", "nope");
  config->Set("num_local_experts", int64_t{0});
  return keys.CopyInt("feed_forward_length", "shared_intermediate_size", config);
}

}  // namespace

Status AddGgufGranite(const GgufKeys& keys, Json* config) {
  KVASIR_TRY(const double logits, keys.metadata.Number(keys.Key("logit_scale")));
  config->Set("logits_scaling", logits);
  for (const auto& [name, field] : {std::pair{"embedding_scale", "embedding_multiplier"},
                                    std::pair{"residual_scale", "residual_multiplier"}}) {
    KVASIR_TRY(const double factor, keys.metadata.NumberOr(keys.Key(name), 0.0));
    config->Set(field, factor == 0 ? 1.0 : factor);  // 0: readers leave it out
  }
  KVASIR_TRY(double scale, keys.metadata.NumberOr(keys.Key("attention.scale"), 0.0));
  KVASIR_TRY(const int64_t head_dim, config->GetInt("head_dim"));
  if (scale == 0 && head_dim > 0) scale = 1.0 / std::sqrt(static_cast<double>(head_dim));
  config->Set("attention_multiplier", scale);
  // What switches rope off.
  KVASIR_TRY(const bool turns, keys.metadata.FlagOr(keys.Key("rope.scaling.finetuned"), true));
  if (keys.architecture == "granitehybrid") {
    config->Set("position_embedding_type", turns ? "rope" : "nope");
    return {};
  }
  return turns ? Status() : SetGraniteWithoutRope(keys, config);
}

Status AddGgufOlmo(const GgufKeys& keys, Json* config) {
  KVASIR_TRY(const int64_t window, keys.metadata.IntOr(keys.Key("attention.sliding_window"), 0));
  if (window == 0) return {};
  config->Set("architectures", Json::Array{Json("Olmo3ForCausalLM")});
  config->Set("model_type", "olmo3");
  const std::string base = keys.Key("rope.freq_base");
  const std::string sliding = keys.Key("rope.freq_base_swa");
  KVASIR_TRY(const double theta, keys.metadata.NumberOr(base, 10000.0));
  KVASIR_TRY(const double sliding_theta, keys.metadata.NumberOr(sliding, theta));
  if (sliding_theta == theta) return AddGgufWindow(keys, config);
  return {ErrorCode::kUnsupported,
          "metadata '" + sliding + "' is not '" + base + "': supported are models with one base"};
}

Status AddGgufPhi3(const GgufKeys& keys, Json* config) {
  KVASIR_TRY(const int64_t window, keys.metadata.IntOr(keys.Key("attention.sliding_window"), 0));
  if (window != 0) config->Set("sliding_window", window);
  KVASIR_TRY(const int64_t head_dim, config->GetInt("head_dim"));
  return AddGgufRotatedPart(keys, head_dim, config);
}

Result<Json> GgufLongRope(const GgufFile& file, int64_t rotated) {
  const bool has_long = file.Find(kGgufLongDivisors) != nullptr;
  if (has_long != (file.Find(kGgufShortDivisors) != nullptr)) {
    return {ErrorCode::kCorrupt,
            "tensor '" + std::string(has_long ? kGgufShortDivisors : kGgufLongDivisors) +
                "' is missing beside '" +
                std::string(has_long ? kGgufLongDivisors : kGgufShortDivisors) + "'"};
  }
  if (!has_long) return Json();
  KVASIR_TRY(Json long_factor, Divisors(file, kGgufLongDivisors, rotated / 2));
  KVASIR_TRY(Json short_factor, Divisors(file, kGgufShortDivisors, rotated / 2));
  return Json(Json::Object{{"type", "longrope"},
                           {"long_factor", std::move(long_factor)},
                           {"short_factor", std::move(short_factor)}});
}

}  // namespace kvasir
