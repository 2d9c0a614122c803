#include "kvasir/model/gguf_names.h"

#include <array>
#include <charconv>
#include <string_view>
#include <system_error>

namespace kvasir {
namespace {

struct Renaming {
  std::string_view decoder;
  std::string_view gguf;
};
// What has no number.
constexpr std::array<Renaming, 6> kTop = {{
    {"embed_tokens.weight", "token_embd.weight"},
    {"norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
    {"embed_tokens_per_layer.weight", "per_layer_token_embd.weight"},
    {"per_layer_model_projection.weight", "per_layer_model_proj.weight"},
    {"per_layer_projection_norm.weight", "per_layer_proj_norm.weight"},
}};
// Of what surrounds the layer that drafts; ".weight" stays.
constexpr std::array<Renaming, 6> kDraftParts = {{
    {"fc", "nextn.eh_proj"},
    {"pre_fc_norm_embedding", "nextn.enorm"},
    {"pre_fc_norm_hidden", "nextn.hnorm"},
    {"norm", "nextn.shared_head_norm"},
    {"embed_tokens", "nextn.embed_tokens"},
    {"shared_head.head", "nextn.shared_head_head"},
}};
// Parts of a layer; ".weight" and ".bias" stay.
constexpr std::array<Renaming, 54> kLayerParts = {{
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"self_attn.q_a_proj", "attn_q_a"},
    {"self_attn.q_a_layernorm", "attn_q_a_norm"},
    {"self_attn.q_b_proj", "attn_q_b"},
    {"self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa"},
    {"self_attn.kv_a_layernorm", "attn_kv_a_norm"},
    {"self_attn.kv_b_proj", "attn_kv_b"},
    {"self_attn.embed_q", "attn_k_b"},
    {"self_attn.unembed_out", "attn_v_b"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_attention_layernorm", "post_attention_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"post_feedforward_layernorm_1", "post_ffw_norm_1"},
    {"pre_feedforward_layernorm_2", "pre_ffw_norm_2"},
    {"post_feedforward_layernorm_2", "post_ffw_norm_2"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.router", "ffn_gate_inp"},
    {"per_layer_input_gate", "inp_gate"},
    {"per_layer_projection", "proj"},
    {"post_per_layer_input_norm", "post_norm"},
    {"linear_attn.in_proj_qkv", "attn_qkv"},
    {"linear_attn.in_proj_z", "attn_gate"},
    {"linear_attn.in_proj_b", "ssm_beta"},
    {"linear_attn.in_proj_a", "ssm_alpha"},
    {"linear_attn.in_proj_qkvz", "ssm_in"},
    {"linear_attn.in_proj_ba", "ssm_ba"},
    {"linear_attn.conv1d", "ssm_conv1d"},
    {"linear_attn.norm", "ssm_norm"},
    {"linear_attn.out_proj", "ssm_out"},
    {"conv.in_proj", "shortconv.in_proj"},
    {"conv.conv", "shortconv.conv"},
    {"conv.out_proj", "shortconv.out_proj"},
    {"mamba.in_proj", "ssm_in"},
    {"mamba.conv1d", "ssm_conv1d"},
    {"mamba.norm", "ssm_norm"},
    {"mamba.out_proj", "ssm_out"},
    {"block_sparse_moe.router.layer", "ffn_gate_inp"},
    {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
    {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
}};
// Whole names within a layer: experts stacked into one tensor, and what goes with their router.
constexpr std::array<Renaming, 32> kLayerTensors = {{
    {"mlp.switch_mlp.gate_proj.weight", "ffn_gate_exps.weight"},
    {"mlp.switch_mlp.up_proj.weight", "ffn_up_exps.weight"},
    {"mlp.switch_mlp.down_proj.weight", "ffn_down_exps.weight"},
    {"experts.switch_glu.gate_proj.weight", "ffn_gate_exps.weight"},
    {"experts.switch_glu.up_proj.weight", "ffn_up_exps.weight"},
    {"experts.switch_glu.down_proj.weight", "ffn_down_exps.weight"},
    {"experts.gate_up_proj", "ffn_gate_up_exps.weight"},
    {"experts.down_proj", "ffn_down_exps.weight"},
    {"router.proj.weight", "ffn_gate_inp.weight"},
    {"router.scale", "ffn_gate_inp.scale"},
    {"router.per_expert_scale", "ffn_down_exps.scale"},
    {"layer_scalar", "layer_output_scale.weight"},
    {"mlp.experts.gate_proj.weight", "ffn_gate_exps.weight"},
    {"mlp.experts.up_proj.weight", "ffn_up_exps.weight"},
    {"mlp.experts.down_proj.weight", "ffn_down_exps.weight"},
    {"mlp.experts.gate_proj.bias", "ffn_gate_exps.bias"},
    {"mlp.experts.up_proj.bias", "ffn_up_exps.bias"},
    {"mlp.experts.down_proj.bias", "ffn_down_exps.bias"},
    {"self_attn.sinks", "attn_sinks.weight"},
    {"mlp.experts.gate_up_proj", "ffn_gate_up_exps.weight"},
    {"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"},
    {"block_sparse_moe.switch_mlp.gate_proj.weight", "ffn_gate_exps.weight"},
    {"block_sparse_moe.switch_mlp.up_proj.weight", "ffn_up_exps.weight"},
    {"block_sparse_moe.switch_mlp.down_proj.weight", "ffn_down_exps.weight"},
    {"mlp.expert_bias", "exp_probs_b.bias"},
    {"mlp.gate.e_score_correction_bias", "exp_probs_b.bias"},
    {"mamba.A", "ssm_a"},
    {"mamba.D", "ssm_d"},
    {"mamba.dt_bias", "ssm_dt.bias"},
    {"linear_attn.A", "ssm_a"},
    {"linear_attn.dt_bias", "ssm_dt.bias"},
    {"linear_attn.dt", "ssm_dt"},
}};

template <size_t n>
std::string_view Renamed(const std::array<Renaming, n>& list, std::string_view name) {
  for (const Renaming& renaming : list) {
    if (renaming.decoder == name) return renaming.gguf;
  }
  return {};
}

// Of a name without its suffix, the suffix added again; empty for what has no name.
template <size_t n>
std::string RenamedPart(const std::array<Renaming, n>& list, std::string_view name) {
  const size_t suffix = name.rfind('.');
  if (suffix == std::string_view::npos) return {};
  const std::string_view renamed = Renamed(list, name.substr(0, suffix));
  if (renamed.empty()) return {};
  return std::string(renamed) + std::string(name.substr(suffix));
}

// Within a layer; empty for what has no name.
std::string LayerTensorName(ModelFamily family, std::string_view name) {
  const std::string_view whole = Renamed(kLayerTensors, name);
  if (!whole.empty()) return std::string(whole);
  // The norm before the MLP, which is the one after attention in families with two norms.
  const bool is_called_after_attention =
      TraitsOf(family).has_post_norms || family == ModelFamily::kGptOss ||
      family == ModelFamily::kQwen35 || family == ModelFamily::kGlm4Moe;
  constexpr std::string_view kNorm = "post_attention_layernorm.";
  if (!is_called_after_attention && name.starts_with(kNorm)) {
    return "ffn_norm." + std::string(name.substr(kNorm.size()));
  }
  return RenamedPart(kLayerParts, name);
}

// "blk.3." and what it is called there; empty for what has no name.
std::string BlockTensorName(int64_t block, const std::string& name) {
  return name.empty() ? name : "blk." + std::to_string(block) + "." + name;
}

// Of `name`, "layers.3.mlp.up_proj.weight"; blocks are counted from `first` on.
std::string LayerName(ModelFamily family, int64_t first, std::string_view name) {
  constexpr std::string_view kLayers = "layers.";
  if (!name.starts_with(kLayers)) return {};
  name.remove_prefix(kLayers.size());
  int64_t layer = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
  if (error != std::errc() || end == name.data() + name.size() || *end != '.') return {};
  name.remove_prefix(static_cast<size_t>(end - name.data()) + 1);
  return BlockTensorName(first + layer, LayerTensorName(family, name));
}

// `name` without its "mtp.".
std::string DraftName(const ModelConfig& config, std::string_view name) {
  const std::string part = RenamedPart(kDraftParts, name);
  if (!part.empty()) return BlockTensorName(config.num_hidden_layers, part);
  return LayerName(config.family, config.num_hidden_layers, name);
}

}  // namespace

std::string GgufTensorName(const ModelConfig& config, const std::string& name) {
  if (config.family == ModelFamily::kLfm2 && name == "norm.weight") return "token_embd_norm.weight";
  const std::string_view top = Renamed(kTop, name);
  if (!top.empty()) return std::string(top);
  constexpr std::string_view kDraft = "mtp.";
  const std::string renamed = name.starts_with(kDraft)
                                  ? DraftName(config, std::string_view(name).substr(kDraft.size()))
                                  : LayerName(config.family, 0, name);
  return renamed.empty() ? name : renamed;
}

std::string GgufScaleName(ModelFamily family, std::string_view tensor) {
  constexpr std::string_view kWeight = ".weight";
  if (!tensor.ends_with(kWeight)) return {};
  const std::string scale =
      std::string(tensor.substr(0, tensor.size() - kWeight.size())) + ".scale";
  // Gemma 4 has router.scale and router.per_expert_scale there.
  const bool is_taken = family == ModelFamily::kGemma4 && (scale.ends_with("ffn_gate_inp.scale") ||
                                                           scale.ends_with("ffn_down_exps.scale"));
  return is_taken ? std::string() : scale;
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
