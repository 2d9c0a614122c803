// The tensors that a decoder reads from a file, under the names of a checkpoint.
// Deliberately found by building the decoder on them: what loads is what is listed.
#ifndef KVASIR_MODEL_TENSOR_LIST_H_
#define KVASIR_MODEL_TENSOR_LIST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/formats/checkpoint.h"
#include "kvasir/formats/gguf.h"
#include "kvasir/formats/model_config.h"
#include "kvasir/model/decoder_spec.h"
#include "kvasir/model/weight_source.h"
#include "kvasir/tensor/weight_tensor.h"

namespace kvasir {

struct ListedTensor {
  std::string name;  // "model.layers.0.mlp.up_proj.weight", "lm_head.weight"
  WeightTensor rows;
  // To be added to every number: norms that the file keeps with their 1 and checkpoints without.
  float offset = 0;
  int64_t float_rows = 0;  // of so many rows memory has the values, not codes (RowsAsColumns)
  bool is_exact = false;   // a router, say: every number as it is, whatever it is stored in
};
// How a matrix of the list lies in memory where nobody asks for a format.
WeightFormat FormatInMemory(const ListedTensor& tensor);

struct TensorList {
  std::vector<ListedTensor> tensors;
  std::vector<std::string> unread;  // UnreadTensors
  bool has_mtp_head = false;        // that MtpHead can load
};

// Borrow `file` and `checkpoint`. ERRORS: as LoadModel's.
Result<TensorList> ListTensors(const GgufFile& file, const ModelConfig& config);
Result<TensorList> ListTensors(const Checkpoint& checkpoint, const ModelConfig& config);

// Names of what the files hold and the decoder that was loaded from `source` never asked for, but
// for what is known to be of no use.
std::vector<std::string> UnreadTensors(const DecoderSpec& spec, const WeightSource& source);
// "tensors that no decoder reads: " and the first of them.
std::string UnreadLine(const std::vector<std::string>& unread);

// What the matrices take in memory when each keeps the type it is stored in.
uint64_t PackedBytes(const std::vector<ListedTensor>& tensors);

}  // namespace kvasir

#endif  // KVASIR_MODEL_TENSOR_LIST_H_
