// QuantizedModules: the matrices of a checkpoint that are several tensors each, codes and scales,
// whoever quantized them. Deliberately decides by the tensors, not by the config, whether a matrix
// is quantized: overrides and lists of exceptions need not be understood.
#ifndef KVASIR_FORMATS_QUANTIZED_MODULES_H_
#define KVASIR_FORMATS_QUANTIZED_MODULES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/formats/checkpoint.h"
#include "kvasir/formats/checkpoint_quantization.h"
#include "kvasir/tensor/weight_tensor.h"

namespace kvasir {

class QuantizedModules {
 public:
  // Both are borrowed.
  QuantizedModules(const Checkpoint& checkpoint, const CheckpointQuantization& quantization)
      : checkpoint_(checkpoint), quantization_(quantization) {}

  // Of "model.layers.0.mlp.up_proj".
  bool Has(const std::string& module) const {
    return IsMlx(module) || IsBlocks(module) || IsHf(module);
  }

  // The matrix; stacked ones keep their extents. ERRORS: kCorrupt, kUnsupported, naming file and
  // module. REQUIRES: Has(module).
  Result<WeightTensor> Read(const std::string& module) const;

  // The names of its tensors, also of those that only say how activations are quantized.
  std::vector<std::string> PartsOf(const std::string& module) const;

 private:
  bool IsMlx(const std::string& module) const;
  // gpt-oss: "M_blocks" and "M_scales".
  bool IsBlocks(const std::string& module) const;
  bool IsHf(const std::string& module) const;
  Result<WeightTensor> ReadMlx(const std::string& module) const;
  Result<WeightTensor> ReadBlocks(const std::string& module) const;

  const Checkpoint& checkpoint_;
  const CheckpointQuantization& quantization_;
};

}  // namespace kvasir

#endif  // KVASIR_FORMATS_QUANTIZED_MODULES_H_
