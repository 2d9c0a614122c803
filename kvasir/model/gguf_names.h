// The names of a decoder's tensors in GGUF files.
// Deliberately only names: gguf_weights.cc and kvasir/convert know what else differs.
#ifndef KVASIR_MODEL_GGUF_NAMES_H_
#define KVASIR_MODEL_GGUF_NAMES_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "kvasir/formats/model_config.h"

namespace kvasir {

// "layers.3.mlp.up_proj.weight" is "blk.3.ffn_up.weight"; those of a layer that drafts, "mtp.*",
// are the block's behind the last layer's. Names that mean nothing stay as they are.
std::string GgufTensorName(const ModelConfig& config, const std::string& name);

// Of "blk.3.ffn_up.weight" "blk.3.ffn_up.scale", whose number, of experts one each, all weights of
// the tensor are to be multiplied with (files that were NVFP4 before). Empty where a family has
// another tensor of that name.
std::string GgufScaleName(ModelFamily family, std::string_view tensor);

// True for llama's queries and keys, whose rows lie in another order in GGUF files.
bool HasInterleavedRows(ModelFamily family, const std::string& name);

// Element `row` of a head's rows as the decoder wants them: pairs (i, i + head_dim / 2) turn
// together. Llama files have them beside each other, at InterleavedRow; DecoderRow is its inverse.
int64_t InterleavedRow(int64_t row, int64_t head_dim);
int64_t DecoderRow(int64_t row, int64_t head_dim);

}  // namespace kvasir

#endif  // KVASIR_MODEL_GGUF_NAMES_H_
