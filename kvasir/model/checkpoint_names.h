// What tensors are called in checkpoints of families that do not call them as the decoder does.
// Deliberately a table beside gguf_names.h: names are all that differs.
#ifndef KVASIR_MODEL_CHECKPOINT_NAMES_H_
#define KVASIR_MODEL_CHECKPOINT_NAMES_H_

#include <string>

#include "kvasir/formats/model_config.h"

namespace kvasir {

// "layers.3.feed_forward.w1.weight" of a checkpoint is "layers.3.mlp.gate_proj.weight" to the
// decoder. Names are without a wrapper's prefix; what has no other name keeps its own, and so does
// what is the decoder's name already, but in GLM-4, which calls other norms so.
std::string DecoderTensorName(ModelFamily family, std::string name);

// What layer `layers`, behind the last one of a model in the manner of DeepSeek-V3, is called as
// the layer that drafts: "layers.47.eh_proj.weight" is "mtp.fc.weight", its attention is that of
// "mtp.layers.0". Others keep their names. `name` is without a wrapper's prefix.
std::string DraftTensorName(int64_t layers, std::string name);

// DecoderTensorName the other way, as the published checkpoints of the family have it.
std::string CheckpointTensorName(ModelFamily family, std::string name);

}  // namespace kvasir

#endif  // KVASIR_MODEL_CHECKPOINT_NAMES_H_
