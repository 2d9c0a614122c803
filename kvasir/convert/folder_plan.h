// FolderPlan: what each tensor of a model becomes, and which file it goes to.
// Deliberately decided before anything is written: a plan is what a resumed run is compared with.
#ifndef KVASIR_CONVERT_FOLDER_PLAN_H_
#define KVASIR_CONVERT_FOLDER_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/convert/model_source.h"
#include "kvasir/convert/quantize_policy.h"
#include "kvasir/convert/weight_encoder.h"
#include "kvasir/formats/safetensors_writer.h"

namespace kvasir {

struct PlannedTensor {
  const SourceTensor* source = nullptr;
  bool is_copied = false;  // as stored; otherwise through `encoding`
  WeightEncoding encoding;

  uint64_t bytes() const;
  // "x.weight", and if quantized "x.scales" and "x.biases".
  std::vector<TensorDeclaration> Declarations() const;
};

// Movable, not copyable: shards point into `tensors`.
struct FolderPlan {
  FolderPlan() = default;
  FolderPlan(FolderPlan&&) = default;
  FolderPlan& operator=(FolderPlan&&) = default;

  // The source's, and where something is quantized experts stacked, as readers of such folders
  // want them.
  std::vector<SourceTensor> tensors;
  std::vector<std::vector<PlannedTensor>> shards;  // of `tensors`
  // "quantization" of config.json; null when nothing is quantized.
  Json quantization;
  uint64_t total_bytes = 0;

  // "model.safetensors", or "model-00001-of-00003.safetensors".
  std::string ShardName(size_t shard) const;
  // Names, types and shapes of all files, as one text.
  std::string Fingerprint() const;
};

struct PlanOptions {
  // What becomes quantized, unset: nothing.
  std::optional<QuantizePolicy> quantize;
  // Type of floats that are not quantized; unset: as stored.
  std::optional<DType> dtype;
  uint64_t shard_bytes = uint64_t{2} << 30;
};

// Borrows `source`. ERRORS: kInvalidArgument when nothing of the model can be quantized; kCorrupt
// where an expert is missing.
Result<FolderPlan> PlanFolder(const ModelSource& source, const PlanOptions& options);

}  // namespace kvasir

#endif  // KVASIR_CONVERT_FOLDER_PLAN_H_
