// ModelConfig: the shape of a model, read from the config.json of a checkpoint folder.
// Deliberately no weights and no graph: every field is checked and resolved here, so that whoever
// builds a model sees one form, whichever generation of config file it came from.
#ifndef KVASIR_FORMATS_MODEL_CONFIG_H_
#define KVASIR_FORMATS_MODEL_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/base/token.h"
#include "kvasir/formats/checkpoint_quantization.h"
#include "kvasir/formats/generation_config.h"
#include "kvasir/formats/rope_config.h"
#include "kvasir/tensor/dtype.h"

namespace kvasir {

// kLlama also stands for Mistral (the same graph, every layer sliding when it has a window),
// Ministral 3, SmolLM3 and Granite, whose differences are numbers, and names of experts, and layers
// of Mamba-2 in Granite 4's hybrids. kQwen3 also for Qwen3-MoE: its
// layers with experts say so themselves. kQwen35 stands for all whose layers are gated delta nets
// but for every fourth: Qwen3.5, 3.6 and Qwen3-Next, with experts and without. kOlmo: OLMo 2 and 3.
// kPhi3: Phi-3 and Phi-4. kLfm2: LFM2 and LFM2.5, with experts and without. kDeepSeek: DeepSeek-V2
// and V3 and all whose attention is theirs, GLM-4.7-Flash among them. kGlm4: GLM-4 without experts,
// kGlm4Moe: GLM-4.5 to 4.7 with them.
enum class ModelFamily {
  kLlama,
  kQwen2,
  kQwen3,
  kQwen35,
  kGemma2,
  kGemma3,
  kGemma4,
  kGptOss,
  kOlmo,
  kPhi3,
  kLfm2,
  kDeepSeek,
  kGlm4,
  kGlm4Moe
};
std::string_view ModelFamilyName(ModelFamily family);  // "llama", ...

// What all models of a family have in common.
struct FamilyTraits {
  bool is_gemma = false;           // a tied head
  bool has_pre_norms = true;       // before attention and MLP
  bool has_post_norms = false;     // after attention and MLP, before the residual is added
  bool has_qk_norm = false;        // RMS norms on queries and keys, per head
  bool has_wide_qk_norm = false;   // these over all heads together
  bool has_sliding_rope = false;   // sliding layers have a rope of their own
  bool has_sinks = false;          // a score for each query head, of a row whose value is 0
  bool has_expert_biases = false;  // also on the router
  bool has_query_gates = false;    // q_proj also makes a gate of what each query head attended to
};
FamilyTraits TraitsOf(ModelFamily family);

enum class Activation { kSilu, kGeluTanh };

// kSliding: key j is visible to query i iff i - sliding_window < j <= i. kRecurrent: a state
// instead of keys and values: a gated delta net, Mamba-2 or a short convolution, whichever the
// model has.
enum class LayerKind { kFull, kSliding, kRecurrent };

// Numbers of weights.
struct ParameterCounts {
  int64_t embedding = 0;  // per-layer embeddings included
  int64_t attention = 0;  // all layers: q, k, v, o and their biases
  int64_t mlp = 0;        // all layers, experts and what goes with per-layer embeddings included
  int64_t norms = 0;      // all layers, q and k norms, layer scalars and the final norm
  int64_t output = 0;     // 0 when tied to the embedding

  int64_t total() const { return embedding + attention + mlp + norms + output; }
};

// Experts of a mixture: every token goes through `per_token` of them.
struct ExpertsConfig {
  int count = 0;  // 0: the model has none
  int per_token = 0;
  int64_t intermediate_size = 0;    // of one expert
  bool has_sigmoid_scores = false;  // of every expert alone; else a softmax over all
  bool has_choice_biases = false;   // added to scores where experts are chosen, not to weights
  bool normalizes_weights = true;   // the weights of the chosen sum to 1
  double weight_scale = 1.0;        // multiplies weights at last
  // They lie in so many groups of as many each. A token chooses among those of its best groups,
  // which scores say by their largest, or, where each is a sigmoid, by their two largest.
  int groups = 1;
  int groups_per_token = 1;
  // The dense MLP of such a layer stays, beside the experts; otherwise they replace it.
  bool beside_dense = false;
  // Of one more, which every token goes through; 0: there is none.
  int64_t shared_intermediate_size = 0;
  bool has_shared_gate = true;  // times the sigmoid of a gate

  friend bool operator==(const ExpertsConfig&, const ExpertsConfig&) = default;
};

// Sizes of a gated delta net (Yang et al., arXiv 2412.06464), or of Mamba-2 seen as linear
// attention (DeltaShape): its groups are key heads, its state's size is that of keys.
struct DeltaNetConfig {
  bool is_mamba = false;
  bool has_conv_bias = false;
  int key_heads = 0;    // of queries too; 0: the model has none
  int value_heads = 0;  // a multiple of key_heads
  int key_dim = 0;
  int value_dim = 0;
  int conv_width = 0;
  // Value head h reads key head h % key_heads; else h / (value_heads / key_heads).
  bool is_tiled = false;

  friend bool operator==(const DeltaNetConfig&, const DeltaNetConfig&) = default;
};

// Sizes of a gated short convolution over all channels of the residual stream.
struct ShortConvConfig {
  int width = 0;  // inputs that it sees, the token's own included; 0: the model has none
  bool has_bias = false;

  friend bool operator==(const ShortConvConfig&, const ShortConvConfig&) = default;
};

// Sizes of multi-head latent attention (DeepSeek-AI, arXiv 2405.04434): keys and values of all
// heads are made of one latent of each token and of a key that turns and that all heads share.
struct LatentConfig {
  int query_rank = 0;  // of what queries are made of; 0: of the hidden state itself
  int kv_rank = 0;     // of the latent; 0: the model has none
  int plain_dim = 0;   // of a query's and a key's head, what does not turn
  int rotary_dim = 0;  // and what turns, in pairs of neighbours
  int value_dim = 0;   // of a value's head

  friend bool operator==(const LatentConfig&, const LatentConfig&) = default;
};

struct ModelConfig {
  ModelFamily family = ModelFamily::kLlama;
  std::string architecture;  // as the file names it, e.g. "LlamaForCausalLM"

  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int num_hidden_layers = 0;
  int num_attention_heads = 0;
  int num_key_value_heads = 0;  // divides num_attention_heads
  int head_dim = 0;             // even; heads * head_dim may differ from hidden_size
  // With a kv_rank, what is cached is one head of kv_rank + rotary_dim, which keys and values are.
  LatentConfig latent;
  // The same for full-attention layers, where the family tells them apart (Gemma 4); else equal.
  int global_key_value_heads = 0;
  int global_head_dim = 0;
  // Full-attention layers have no values of their own: they are the keys before norm and RoPE.
  bool values_from_keys = false;
  // The last so many layers have no keys and values: each reads those of the last layer before
  // them that is of its kind.
  int num_kv_shared_layers = 0;
  // Layers behind the last one, in the same file, that draft tokens, as DeepSeek-V3 and GLM have
  // them. Nothing reads them.
  int draft_layers = 0;
  bool has_double_wide_mlp = false;  // of the layers that share keys and values
  // Gemma 4: a second embedding table gives every layer so many numbers of its own; 0: none.
  int64_t per_layer_embedding_size = 0;
  ExpertsConfig experts;
  std::vector<bool> expert_layers;  // one per layer; empty without experts
  DeltaNetConfig delta_net;         // of recurrent layers, or else
  ShortConvConfig short_conv;
  int64_t max_position_embeddings = 0;
  double rms_norm_eps = 1e-6;
  Activation activation = Activation::kSilu;
  bool tie_word_embeddings = false;
  // The config says itself that they are not tied, so that there must be a head.
  bool has_own_head = false;
  bool qkv_bias = false;
  bool output_bias = false;  // of the attention's o_proj
  bool has_qk_norm = false;  // also where not all of the family have it
  bool mlp_bias = false;
  // Granite 4: the MLP is called shared_mlp, its gates and ups are one matrix; of models with
  // experts it is the one that every token goes through.
  bool has_shared_mlp = false;
  // Norm weights are stored as they multiply, also where the family stores them around 0: GGUF.
  bool norms_hold_offset = false;

  // One per layer.
  std::vector<LayerKind> layer_kinds;
  int64_t sliding_window =
      0;  // keys a sliding layer sees, the query's own included; 0: none slides
  RopeConfig rope_full;
  RopeConfig rope_sliding;  // equal to rope_full where the family makes no difference
  // One per layer: whose queries and keys no rope turns (SmolLM3; Granite without positions).
  // Empty: all turn.
  std::vector<bool> still_layers;

  // Scores are multiplied by query_pre_attn_scalar^-0.5; head_dim unless the family says otherwise.
  double query_pre_attn_scalar = 0.0;
  double attn_logit_softcapping = 0.0;   // c: scores become c tanh(score / c); 0: off
  double final_logit_softcapping = 0.0;  // the same for logits; 0: off
  // Granite: token embeddings, and what attention and MLP add to the residual stream, are
  // multiplied by these, logits divided.
  double embedding_multiplier = 1.0;
  double residual_multiplier = 1.0;
  double logits_scaling = 1.0;

  std::vector<Token> eos_token_ids;  // generation_config.json wins over config.json; may be empty
  std::optional<Token> bos_token_id;
  std::optional<Token> pad_token_id;
  // Tokens whose logits are -infinity, whatever the model says (generation_config.json).
  std::vector<Token> suppressed_tokens;
  CheckpointQuantization quantization;
  std::optional<DType> dtype;   // what the file says the weights are; the tensors decide
  GenerationConfig generation;  // all absent without generation_config.json

  // Reads `folder`/config.json and, if it exists, `folder`/generation_config.json.
  // ERRORS: as Parse, and kNotFound, kIo; the message begins with the file's path.
  static Result<ModelConfig> Load(const std::string& folder);
  // ERRORS: kCorrupt for a field that is missing, of a wrong type or out of range; kUnsupported for
  // what this build cannot run. The message names the field. Nothing is allocated by its numbers
  // before they are checked.
  static Result<ModelConfig> Parse(const Json& config);
  // The same, also for decoders that have no keys and values at all, as in assistants.
  static Result<ModelConfig> ParseDecoder(const Json& config);

  const RopeConfig& rope(LayerKind kind) const {
    return kind == LayerKind::kFull ? rope_full : rope_sliding;
  }
  FamilyTraits traits() const {
    FamilyTraits traits = TraitsOf(family);
    traits.has_qk_norm |= has_qk_norm;
    return traits;
  }
  // Of one layer. REQUIRES: 0 <= layer < num_hidden_layers.
  bool is_full(int layer) const {
    return layer_kinds[static_cast<size_t>(layer)] == LayerKind::kFull;
  }
  bool is_sliding(int layer) const {
    return layer_kinds[static_cast<size_t>(layer)] == LayerKind::kSliding;
  }
  bool is_recurrent(int layer) const {
    return layer_kinds[static_cast<size_t>(layer)] == LayerKind::kRecurrent;
  }
  bool is_still(int layer) const {
    return !still_layers.empty() && still_layers[static_cast<size_t>(layer)];
  }
  int head_dim_of(int layer) const { return is_full(layer) ? global_head_dim : head_dim; }
  int key_value_heads_of(int layer) const {
    return is_full(layer) ? global_key_value_heads : num_key_value_heads;
  }
  bool has_experts(int layer) const {
    return !expert_layers.empty() && expert_layers[static_cast<size_t>(layer)];
  }
  // Whether it has keys and values, or a state, of its own.
  bool owns_kv(int layer) const { return layer < num_hidden_layers - num_kv_shared_layers; }
  // The earlier layer whose keys and values this one reads; -1: its own, or another model's (an
  // assistant has none).
  int shares_kv(int layer) const;
  int64_t intermediate_size_of(int layer) const {
    return has_double_wide_mlp && shares_kv(layer) >= 0 ? 2 * intermediate_size : intermediate_size;
  }
  ParameterCounts CountParameters() const;
  int64_t ParameterCount() const { return CountParameters().total(); }
  // Elements of K and V that one token adds over all layers, were both stored everywhere.
  int64_t KvElementsPerToken() const;
};

}  // namespace kvasir

#endif  // KVASIR_FORMATS_MODEL_CONFIG_H_
