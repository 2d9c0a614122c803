// Fuzzes config.json and generation_config.json: any text.
// Deliberately checks what callers rely on: an accepted configuration is consistent.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kvasir/base/check.h"
#include "kvasir/base/json.h"
#include "kvasir/formats/assistant_config.h"
#include "kvasir/formats/model_config.h"
#include "kvasir/model/families.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto json =
      kvasir::Json::Parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!json.ok()) return 0;
  (void)kvasir::GenerationConfig::Parse(*json).ok();
  const auto assistant = kvasir::AssistantConfig::Parse(*json);
  KVASIR_CHECK(!assistant.ok() || assistant->ParameterCount() > 0);
  const auto model = kvasir::ModelConfig::Parse(*json);
  if (!model.ok()) return 0;
  KVASIR_CHECK(model->num_attention_heads % model->num_key_value_heads == 0);
  KVASIR_CHECK(model->head_dim > 0 && model->head_dim % 2 == 0);
  KVASIR_CHECK(model->layer_kinds.size() == static_cast<size_t>(model->num_hidden_layers));
  KVASIR_CHECK(model->ParameterCount() > 0);
  KVASIR_CHECK(model->KvElementsPerToken() >= 0);  // of delta nets alone: none
  KVASIR_CHECK(model->query_pre_attn_scalar > 0.0);
  KVASIR_CHECK(model->rope_full.theta >= 1.0 && model->rope_full.factor >= 1.0);
  for (const kvasir::LayerKind kind : model->layer_kinds) {
    KVASIR_CHECK(kind != kvasir::LayerKind::kSliding || model->sliding_window > 0);
  }
  const kvasir::DecoderSpec spec = kvasir::MakeDecoderSpec(*model);
  for (const kvasir::DecoderLayerSpec& layer : spec.layers) {
    const auto rope = static_cast<size_t>(layer.rope);
    KVASIR_CHECK(rope < spec.ropes.size());
    KVASIR_CHECK(2 * spec.ropes[rope].inverse_frequencies.size() ==
                 static_cast<size_t>(layer.head_dim));
  }
  return 0;
}
