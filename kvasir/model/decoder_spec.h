// DecoderSpec: everything that distinguishes one decoder family from another, as data.
// A family file turns a config into one of these; decoder_model.cc runs any of them.
// Deliberately no tensors here, and no names of models.
#ifndef KVASIR_MODEL_DECODER_SPEC_H_
#define KVASIR_MODEL_DECODER_SPEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kvasir/backend/backend.h"
#include "kvasir/kv/kv_spec.h"
#include "kvasir/model/rope.h"

namespace kvasir {

struct DecoderLayerSpec {
  RetentionSpec retention;  // which rows a query may see
  int rope = 0;             // index into DecoderSpec::ropes
  int shares_kv = -1;       // earlier layer whose keys and values this one reads; -1: its own
};

struct DecoderSpec {
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t vocab_size = 0;
  int64_t context_tokens = 0;  // largest position + 1 the model was made for
  int query_heads = 0;
  int kv_heads = 0;
  int head_dim = 0;

  float attention_scale = 1;    // multiplies queries before the scores
  float attention_softcap = 0;  // 0: off
  float final_softcap = 0;      // 0: off
  float embedding_scale = 1;    // multiplies token embeddings
  float norm_eps = 1e-6f;
  // Checkpoints of some families store norm weights around 0: the norm multiplies with
  // norm_offset + weight.
  float norm_offset = 0;

  enum class Norms {
    kPre,       // before attention and before the MLP
    kSandwich,  // also after each of them, before the residual is added
  };
  Norms norms = Norms::kPre;
  bool has_qkv_bias = false;
  bool has_output_bias = false;  // on o_proj
  bool has_mlp_bias = false;
  bool has_qk_norm = false;      // per-head RMS norm of queries and keys before RoPE
  bool ties_embeddings = false;  // logits use the embedding table
  GateActivation activation = GateActivation::kSilu;

  std::vector<RopeSpec> ropes;
  std::vector<DecoderLayerSpec> layers;
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_DECODER_SPEC_H_
