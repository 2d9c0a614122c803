// Which tensors of a model are quantized, and which of them get more bits.
// Deliberately goes by names and shapes alone, so that it works for models this build cannot run.
//
// Norms, biases, routers, vision and audio towers, tables of per-layer embeddings, tensors of fewer
// than 1,024 numbers and rows that are no whole groups stay as they are. Token embedding and head
// get 8 bits of the same family; so do v_proj and down_proj of the first and last eighth of the
// layers and of every third between. (Measured by others to be what hurts most: mlx-lm's recipes
// mixed_4_8, ollama's policy.) A draft's embedding and head get what was asked for: they
// decide only how often it is right.
#ifndef KVASIR_CONVERT_QUANTIZE_POLICY_H_
#define KVASIR_CONVERT_QUANTIZE_POLICY_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kvasir/formats/mlx_quantization.h"

namespace kvasir {

struct QuantizePolicy {
  MlxFormat base;
  int64_t layers = 0;  // of the model; 0: unknown, no layer is special
  bool is_draft = false;

  // Nothing: the tensor stays dense. `name` as in a checkpoint
  // ("model.layers.3.mlp.up_proj.weight").
  std::optional<MlxFormat> For(std::string_view name, const std::vector<int64_t>& shape) const;
};

}  // namespace kvasir

#endif  // KVASIR_CONVERT_QUANTIZE_POLICY_H_
