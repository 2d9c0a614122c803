// ConvertModel: a model folder or GGUF file becomes a model folder: dense, or quantized as MLX does
// it, with its tokenizer and chat template.
// Deliberately streams: memory is bounded by one tensor's scales and a batch of rows.
#ifndef KVASIR_CONVERT_CONVERT_MODEL_H_
#define KVASIR_CONVERT_CONVERT_MODEL_H_

#include <cstdint>
#include <functional>
#include <string>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/convert/folder_plan.h"
#include "kvasir/convert/model_source.h"

namespace kvasir {

struct WriteOptions {
  PlanOptions plan;
  int threads = 0;  // 0: AvailableCores()
  // A folder inside `folder` that somebody else writes; empty: none.
  std::string kept_folder;
  // Called with bytes written so far and in all, now and then. May be empty.
  std::function<void(uint64_t done, uint64_t total)> progress;
};

// "f32", "f16", "bf16", a quantization type (weight_encoder.h), or "stored": nothing changes but
// the container. `group_size` 0: the type's own. ERRORS: kInvalidArgument for unknown types, and
// for quantizing what is quantized already.
Result<PlanOptions> PlanFor(const ModelSource& source, const std::string& type, int group_size);

// Writes config.json, the tensors and the files of `source` into `folder`, which exists and is
// under construction (FolderBuilder): tensor files that a stopped run of the same conversion
// completed are kept, known by a file kConversionStateName; everything else in it is removed first.
// ERRORS: kIo, kInvalidArgument.
Status WriteModelFolder(const ModelSource& source, const std::string& folder,
                        const WriteOptions& options);

}  // namespace kvasir

#endif  // KVASIR_CONVERT_CONVERT_MODEL_H_
