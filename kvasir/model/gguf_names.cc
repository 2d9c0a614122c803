#include "kvasir/model/gguf_names.h"

#include <array>
#include <string_view>

namespace kvasir {
namespace {

struct Renaming {
  std::string_view decoder;
  std::string_view gguf;
};
constexpr std::array<Renaming, 13> kLayerParts = {{
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_attention_layernorm", "post_attention_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
}};

}  // namespace

std::string GgufTensorName(ModelFamily family, const std::string& name) {
  if (name == "embed_tokens.weight") return "token_embd.weight";
  if (name == "norm.weight") return "output_norm.weight";
  if (name == "lm_head.weight") return "output.weight";
  constexpr std::string_view kLayers = "layers.";
  const size_t number_end = name.find('.', kLayers.size());
  const size_t suffix = name.rfind('.');
  if (!name.starts_with(kLayers) || number_end >= suffix) return name;
  const std::string_view part =
      std::string_view(name).substr(number_end + 1, suffix - number_end - 1);
  std::string_view renamed = part;
  for (const Renaming& renaming : kLayerParts) {
    if (renaming.decoder == part) renamed = renaming.gguf;
  }
  // The norm before the MLP, which is the one after attention in families with two norms.
  if (family != ModelFamily::kGemma3 && part == "post_attention_layernorm") renamed = "ffn_norm";
  return "blk." + name.substr(kLayers.size(), number_end - kLayers.size()) + "." +
         std::string(renamed) + name.substr(suffix);
}

bool HasInterleavedRows(ModelFamily family, const std::string& name) {
  return family == ModelFamily::kLlama &&
         (name.find(".q_proj.") != std::string::npos || name.find(".k_proj.") != std::string::npos);
}

int64_t InterleavedRow(int64_t row, int64_t head_dim) {
  const int64_t in_head = row % head_dim;
  const int64_t half = head_dim / 2;
  return row - in_head + 2 * (in_head % half) + in_head / half;
}

int64_t DecoderRow(int64_t row, int64_t head_dim) {
  const int64_t in_head = row % head_dim;
  return row - in_head + in_head / 2 + in_head % 2 * (head_dim / 2);
}

}  // namespace kvasir
