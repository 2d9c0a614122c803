// DecoderSpec: everything that distinguishes one decoder family from another, as data.
// A family file turns a config into one of these; decoder_model.cc runs any of them.
// Deliberately no tensors here, and no names of models.
#ifndef KVASIR_MODEL_DECODER_SPEC_H_
#define KVASIR_MODEL_DECODER_SPEC_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kvasir/backend/backend.h"
#include "kvasir/base/token.h"
#include "kvasir/kv/kv_spec.h"
#include "kvasir/model/rope.h"

namespace kvasir {

// What follows attention in a layer.
enum class MlpKind {
  kDense,
  kExperts,          // a router and experts instead
  kDenseAndExperts,  // both, each with norms of its own, summed
};

struct DecoderLayerSpec {
  RetentionSpec retention;  // which rows a query may see
  int rope = 0;             // index into DecoderSpec::ropes
  // Earlier layer whose keys and values this one reads, or, if the decoder reads_target, the
  // target's; -1: its own.
  int shares_kv = -1;
  int kv_heads = 0;
  int head_dim = 0;
  int64_t intermediate_size = 0;  // of the dense MLP
  MlpKind mlp = MlpKind::kDense;
  // No value projection: values are the keys before their norm and RoPE. With has_value_norm or
  // latents, the cache need not hold the keys (KvCodec::Kind::kFromValue).
  bool values_from_keys = false;
  // A layer with a state instead of keys and values, in place of attention.
  bool is_recurrent = false;
};

// A gated short convolution over all channels of the residual stream.
struct ShortConvSpec {
  int64_t width = 0;      // 0: the decoder has none; else as ShortConvArgs
  bool has_bias = false;  // on the convolution and both projections
};

// Multi-head latent attention (DeepSeek-AI, arXiv 2405.04434). Keys and values of all heads are
// made of a latent of kv_rank numbers of each token; rotary_dim more of a key turn and are the same
// for all heads. Queries are multiplied with what makes keys, and what heads attended to with what
// makes values, so that the latent itself is attended to: by one key and value head, whose head_dim
// is kv_rank + rotary_dim (latent_attention.h).
struct LatentSpec {
  int64_t query_rank = 0;  // of what queries are made of; 0: of the hidden state itself
  int64_t kv_rank = 0;     // 0: the decoder has none
  int64_t plain_dim = 0;   // of a query's head, what does not turn
  int64_t rotary_dim = 0;
  int64_t value_dim = 0;  // of a value's head
};

struct ExpertsSpec {
  int count = 0;
  int per_token = 0;
  int64_t intermediate_size = 0;
  RouteArgs::Scores scores = RouteArgs::Scores::kSoftmax;
  bool normalizes_weights = false;
  float weight_sum_eps = 0;        // added to the sum that weights are divided by
  bool has_choice_biases = false;  // "expert_bias" is added to scores where experts are chosen
  // It is "gate.e_score_correction_bias" instead, and the one more below is "shared_experts"
  // instead of "shared_expert".
  bool has_deepseek_names = false;
  float weight_scale = 1;  // multiplies weights at last
  int groups = 1;          // as RouteArgs
  int groups_per_token = 1;
  // The router norms the residual stream itself, with weights of its own, and scales experts.
  bool has_router_norm = false;
  // Biases on the router and on every projection of an expert; files that stack experts without
  // quantizing them have the inputs before the outputs, and gates and ups in turns (gpt-oss).
  bool has_biases = false;
  // Of one more, which every token goes through; 0: there is none.
  int64_t shared_intermediate_size = 0;
  bool has_shared_gate = true;  // times the sigmoid of a gate
};

struct DecoderSpec {
  int64_t hidden_size = 0;
  int64_t vocab_size = 0;
  int64_t context_tokens = 0;  // largest position + 1 the model was made for
  int query_heads = 0;

  float attention_scale = 1;    // multiplies queries before the scores
  float attention_softcap = 0;  // 0: off
  float final_softcap = 0;      // 0: off
  float embedding_scale = 1;    // multiplies token embeddings
  float residual_scale = 1;     // multiplies what attention and MLP add to the residual stream
  float logits_scale = 1;       // multiplies logits, before final_softcap
  float norm_eps = 1e-6f;
  // Checkpoints of some families store norm weights around 0: the norm multiplies with
  // norm_offset + weight.
  float norm_offset = 0;

  enum class Norms {
    kPre,       // before attention and before the MLP
    kSandwich,  // also after each of them, before the residual is added
    kPost,      // only there
  };
  Norms norms = Norms::kPre;
  bool has_qkv_bias = false;
  bool has_output_bias = false;  // on o_proj
  bool has_sinks = false;        // a score for each query head, of a row whose value is 0
  bool has_mlp_bias = false;
  // Queries, keys and values are rows of one stored matrix, "self_attn.qkv_proj", in that order.
  bool has_fused_qkv = false;
  // What the matrices of an MLP are called.
  enum class MlpNames {
    kApart,  // "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"
    kFused,  // "mlp.gate_up_proj", gates above ups, and "mlp.down_proj"
    kShared  // "shared_mlp.input_linear", likewise, and "shared_mlp.output_linear"; else as kApart
  };
  MlpNames mlp_names = MlpNames::kApart;
  // q_proj has behind each head's query a gate, by whose sigmoid what the head attended to is
  // multiplied.
  bool has_query_gates = false;
  bool has_qk_norm = false;       // per-head RMS norm of queries and keys before RoPE
  bool has_wide_qk_norm = false;  // with has_qk_norm: over all heads together instead
  bool has_value_norm = false;    // per-head RMS norm of values, without weights
  bool has_layer_scalar = false;  // multiplies the residual stream after each layer
  bool ties_embeddings = false;   // logits use the embedding table
  bool has_own_head = false;      // else they use it as well where a checkpoint has no head
  GateActivation activation = GateActivation::kSilu;

  // A second table gives every layer so many numbers of its own per token (Gemma 4); 0: none.
  int64_t per_layer_size = 0;
  ExpertsSpec experts;                   // of layers that have them
  std::vector<Token> suppressed_tokens;  // get the logit -infinity

  LatentSpec latent;  // of attention, in place of its projections

  // What recurrent layers are, one of these.
  DeltaShape delta_net;
  ShortConvSpec short_conv;
  bool has_conv_bias = false;  // with delta_net, on its convolution

  // The decoder has no keys and values: all layers read those of another model's, its target's,
  // where the step's own rows are not.
  bool reads_target = false;

  std::vector<RopeSpec> ropes;
  std::vector<DecoderLayerSpec> layers;
  int draft_layers = 0;  // behind these in the checkpoint, which no decoder reads
};

// One spec per layer, every row stored in `codec`. Keys that values say are stored from-value,
// derived with `key_norms[layer]`: the weights of that layer's key norm, or none, where all are 1
// (to know sizes before there are weights).
KvCacheSpec DecoderCacheSpec(const DecoderSpec& spec, KvCodec codec,
                             std::span<const std::vector<float>> key_norms = {});

}  // namespace kvasir

#endif  // KVASIR_MODEL_DECODER_SPEC_H_
