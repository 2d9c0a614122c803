// What latent attention makes keys and values with: one matrix, as published checkpoints have it,
// or two stacks, as GGUF files and mlx-lm's folders do. Deliberately one or the other, never both:
// who writes a file says which.
#ifndef KVASIR_CONVERT_LATENT_STACKS_H_
#define KVASIR_CONVERT_LATENT_STACKS_H_

#include <vector>

#include "kvasir/convert/model_source.h"
#include "kvasir/formats/model_config.h"

namespace kvasir {

// Of "self_attn.kv_b_proj", [heads * (plain_dim + value_dim), kv_rank], two stacks of a matrix for
// each head: "embed_q", from queries to latents, [heads, kv_rank, plain_dim], and "unembed_out",
// from latents to values, [heads, value_dim, kv_rank]. ERRORS: kCorrupt for another shape, naming
// the tensor.
Result<std::vector<SourceTensor>> StackLatents(std::vector<SourceTensor> tensors,
                                               const ModelConfig& config);

// The other way, as published checkpoints have it. REQUIRES: a decoder of this config could be
// loaded from the tensors.
std::vector<SourceTensor> JoinLatents(std::vector<SourceTensor> tensors, const ModelConfig& config);

}  // namespace kvasir

#endif  // KVASIR_CONVERT_LATENT_STACKS_H_
