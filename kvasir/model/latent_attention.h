// LatentAttention: the projections of multi-head latent attention (LatentSpec) around attention
// itself, which is that of one key and value head.
// Deliberately absorbed everywhere, also in prompts, where making keys and values of all heads
// would be fewer multiplications from some hundred tokens on: a token's results must not depend on
// how many came with it.
#ifndef KVASIR_MODEL_LATENT_ATTENTION_H_
#define KVASIR_MODEL_LATENT_ATTENTION_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvasir/model/decoder_spec.h"
#include "kvasir/model/linear.h"
#include "kvasir/model/weight_source.h"
#include "kvasir/model/workspace.h"

namespace kvasir {

// A head of keys, queries and what is attended to has its elements in the order of HeadOrder, of a
// head with what turns before the latent: [first half of what turns, first half of the latent,
// second halves].
class LatentAttention {
 public:
  // From the tensors under `prefix` ("layers.3.self_attn."). What makes keys and values is either
  // one matrix, as checkpoints have it, or two stacks of a matrix for each head, as mlx-lm and GGUF
  // files do. ERRORS: as WeightSource.
  static Result<LatentAttention> Load(const DecoderSpec& spec, const std::string& prefix,
                                      WeightSource& source);

  // What attention reads, before RoPE, of x [rows, hidden_size]: queries [rows, heads * head_dim]
  // and latents [rows, head_dim]; either may be without data, and is then not made.
  void Project(const DecoderSpec& spec, Backend& backend, Workspace& workspace, ConstFloatRows x,
               FloatRows queries, FloatRows latents) const;
  // Values of all heads, [rows, heads * value_dim], of latents that they attended to, [rows, heads
  // * head_dim].
  ConstFloatRows Values(const DecoderSpec& spec, Backend& backend, Workspace& workspace,
                        ConstFloatRows attended) const;

  template <typename Visit>
  void ForEachMatrix(const Visit& visit) const {
    for (const Linear* linear : {&query_down_, &query_, &latent_}) {
      if (linear->weights != nullptr) visit(*linear->weights);
    }
    for (const auto* matrices : {&keys_, &values_}) {
      for (const auto& matrix : *matrices) visit(*matrix);
    }
  }

 private:
  using Matrices = std::vector<std::unique_ptr<const WeightMatrix>>;

  Status LoadQueries(const DecoderSpec& spec, const std::string& prefix, WeightSource& source);
  Status LoadHeads(const DecoderSpec& spec, const std::string& prefix, WeightSource& source);
  void MakeQueries(const DecoderSpec& spec, Backend& backend, Workspace& workspace,
                   ConstFloatRows raw, FloatRows queries) const;

  Linear query_down_;              // [query_rank, hidden_size], if there is one
  std::vector<float> query_norm_;  // [query_rank]
  // [heads * (plain_dim + rotary_dim), query_rank or hidden_size]: what does not turn of all heads,
  // then what does, of each head first elements of pairs, then second ones.
  Linear query_;
  Linear latent_;                   // [kv_rank + rotary_dim, hidden_size], likewise
  std::vector<float> latent_norm_;  // [kv_rank]
  Matrices keys_;                   // of every head [kv_rank, plain_dim]: from queries to latents
  Matrices values_;                 // [value_dim, kv_rank]
};

// What it takes in the workspace for a row, in floats, beside what all attention does.
struct LatentRow {
  int64_t gate = 0;    // of kGate
  int64_t up = 0;      // of kUp
  int64_t others = 0;  // of buffers of its own
  int64_t inputs = 0;  // the largest of a matmul
};
LatentRow LatentRowOf(const DecoderSpec& spec);

}  // namespace kvasir

#endif  // KVASIR_MODEL_LATENT_ATTENTION_H_
