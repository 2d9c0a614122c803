// MlxQuantization: how the weights of an MLX checkpoint are quantized, as its config.json says.
// Deliberately only the parameters: mlx_weights.h decodes. Rules: docs/formats/mlx-quantized.md.
#ifndef KVASIR_FORMATS_MLX_QUANTIZATION_H_
#define KVASIR_FORMATS_MLX_QUANTIZATION_H_

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"

namespace kvasir {

enum class MlxMode { kAffine, kMxfp4, kMxfp8, kNvfp4 };
std::string_view MlxModeName(MlxMode mode);  // "affine", ...

struct MlxFormat {
  MlxMode mode = MlxMode::kAffine;
  int bits = 4;
  int group_size = 64;  // weights that share a scale

  friend bool operator==(const MlxFormat&, const MlxFormat&) = default;
};

class MlxQuantization {
 public:
  // Reads the member "quantization" of config.json. Absent bits and group sizes are the mode's own.
  // ERRORS: kCorrupt; kUnsupported for modes, bits and groups MLX does not have. The message names
  // the field.
  static Result<MlxQuantization> Parse(const Json& object);

  // The format of the module `path` ("model.layers.0.mlp.up_proj"): its override, or the common
  // one; nothing when an override says that it is dense. Wrappers of multimodal models put
  // "language_model." before tensors, overrides, or both; it is ignored.
  std::optional<MlxFormat> For(std::string_view path) const;

  const MlxFormat& common() const { return common_; }

 private:
  MlxFormat common_;
  std::map<std::string, std::optional<MlxFormat>, std::less<>> overrides_;
};

}  // namespace kvasir

#endif  // KVASIR_FORMATS_MLX_QUANTIZATION_H_
