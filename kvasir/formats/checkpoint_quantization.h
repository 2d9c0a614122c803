// CheckpointQuantization: how the matrices of a checkpoint are quantized, as its config.json says:
// by MLX, or by the libraries whose models transformers and vLLM run.
// Deliberately only what tensors do not tell themselves: quantized_modules.h reads those.
// Rules: docs/formats/mlx-quantized.md, docs/formats/hf-quantized.md.
#ifndef KVASIR_FORMATS_CHECKPOINT_QUANTIZATION_H_
#define KVASIR_FORMATS_CHECKPOINT_QUANTIZATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/formats/mlx_quantization.h"

namespace kvasir {

// "quantization_config" with a "quant_method".
struct HfQuantization {
  // Those of kScaled say by their tensors what they are: compressed-tensors, fp8, fbgemm_fp8,
  // modelopt.
  enum class Kind { kAwq, kGptq, kScaled };

  Kind kind = Kind::kScaled;
  std::string method;           // as in the file: "awq", "compressed-tensors"
  int bits = 4;                 // GPTQ: of codes, where a module's tensors leave it open
  int64_t group_size = 0;       // GPTQ: 0 where it is not known
  int zero_offset = 0;          // GPTQ: what stored codes of 0 lack; 1 in its first version
  int64_t block_outputs = 128;  // fp8: weights that share a scale, where they do by blocks
  int64_t block_inputs = 128;
  // compressed-tensors: of packed whole numbers, in whatever module; empty where it is not said.
  std::vector<int> packed_bits;

  // ERRORS: kUnsupported for a method, version or format that is not known; kCorrupt. The message
  // names the field.
  static Result<HfQuantization> Parse(const Json& object);
};

struct CheckpointQuantization {
  std::optional<MlxQuantization> mlx;
  std::optional<HfQuantization> hf;

  // Of the fields of config.json, which may be null: "quantization" is MLX's, "quantization_config"
  // its copy for other readers, or another library's, which has a "quant_method".
  // ERRORS: as MlxQuantization::Parse and HfQuantization::Parse; the message begins with the field.
  static Result<CheckpointQuantization> Parse(const Json* quantization,
                                              const Json* quantization_config);
  // Of a whole config.json, whose text_config wins. ERRORS: as Parse.
  static Result<CheckpointQuantization> OfConfig(const Json& config);
};

}  // namespace kvasir

#endif  // KVASIR_FORMATS_CHECKPOINT_QUANTIZATION_H_
