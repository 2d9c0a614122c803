#include "kvasir/model/checkpoint_names.h"

#include <ranges>
#include <span>
#include <string_view>

namespace kvasir {
namespace {

// Parts of a name, with the dots around them.
struct Renaming {
  std::string_view checkpoint;
  std::string_view decoder;
};
constexpr Renaming kLfm2[] = {
    {".operator_norm.", ".input_layernorm."},
    {".ffn_norm.", ".post_attention_layernorm."},
    {".self_attn.out_proj.", ".self_attn.o_proj."},
    {".self_attn.q_layernorm.", ".self_attn.q_norm."},
    {".self_attn.k_layernorm.", ".self_attn.k_norm."},
    {".feed_forward.", ".mlp."},
    {".w1.", ".gate_proj."},
    {".w2.", ".down_proj."},
    {".w3.", ".up_proj."},
};
constexpr Renaming kLfm2Norm = {"embedding_norm.", "norm."};
// What the one calls after attention the other has before the MLP: one after the other.
constexpr Renaming kGlm4[] = {
    {".post_attention_layernorm.", ".pre_feedforward_layernorm."},
    {".post_self_attn_layernorm.", ".post_attention_layernorm."},
    {".post_mlp_layernorm.", ".post_feedforward_layernorm."},
};

// Around the layer itself.
constexpr Renaming kDraftParts[] = {
    {"eh_proj.", "fc."},
    {"enorm.", "pre_fc_norm_embedding."},
    {"hnorm.", "pre_fc_norm_hidden."},
    {"shared_head.norm.", "norm."},
    {"shared_head.head.", "shared_head.head."},
    {"embed_tokens.", "embed_tokens."},
};

std::span<const Renaming> RenamingsOf(ModelFamily family) {
  if (family == ModelFamily::kLfm2) return kLfm2;
  if (family == ModelFamily::kGlm4) return kGlm4;
  return {};
}

void Replace(std::string_view from, std::string_view to, std::string* name) {
  const size_t at = name->find(from);
  if (at != std::string::npos) name->replace(at, from.size(), to);
}

}  // namespace

std::string DecoderTensorName(ModelFamily family, std::string name) {
  if (family == ModelFamily::kLfm2 && name.starts_with(kLfm2Norm.checkpoint)) {
    return name.replace(0, kLfm2Norm.checkpoint.size(), kLfm2Norm.decoder);
  }
  for (const Renaming& renaming : RenamingsOf(family)) {
    Replace(renaming.checkpoint, renaming.decoder, &name);
  }
  return name;
}

std::string DraftTensorName(int64_t layers, std::string name) {
  const std::string layer = "layers." + std::to_string(layers) + ".";
  if (!name.starts_with(layer)) return name;
  const std::string_view part = std::string_view(name).substr(layer.size());
  for (const Renaming& renaming : kDraftParts) {
    if (!part.starts_with(renaming.checkpoint)) continue;
    return "mtp." + std::string(renaming.decoder) +
           std::string(part.substr(renaming.checkpoint.size()));
  }
  return "mtp.layers.0." + std::string(part);
}

std::string CheckpointTensorName(ModelFamily family, std::string name) {
  if (family == ModelFamily::kLfm2 && name.starts_with(kLfm2Norm.decoder)) {
    return name.replace(0, kLfm2Norm.decoder.size(), kLfm2Norm.checkpoint);
  }
  // Backwards, so that it undoes the other.
  for (const Renaming& renaming : RenamingsOf(family) | std::views::reverse) {
    Replace(renaming.decoder, renaming.checkpoint, &name);
  }
  return name;
}

}  // namespace kvasir
