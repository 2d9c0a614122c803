#include "kvasir/tensor/weight_format.h"

#include <array>
#include <string>

namespace kvasir {
namespace {

constexpr std::array<std::string_view, kWeightFormats> kNames = {
    "f32",       "f16",       "bf16",      "bf16_dot",  "q8",        "q4",        "q5",
    "iq4_nl",    "q1_affine", "q2_affine", "q3_affine", "q4_affine", "q5_affine", "q6_affine",
    "q8_affine", "q2_k",      "q3_k",      "q4_k",      "q5_k",      "q6_k",      "iq4_xs",
    "mxfp4",     "nvfp4",     "mxfp8",     "fp8"};
constexpr size_t kMakeable = 6;

}  // namespace

std::array<WeightFormat, kWeightFormats> AllWeightFormats() {
  std::array<WeightFormat, kWeightFormats> all;
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<WeightFormat>(i);
  return all;
}

std::string_view WeightFormatName(WeightFormat format) {
  return kNames[static_cast<size_t>(format)];
}

Result<WeightFormat> WeightFormatFromName(std::string_view name) {
  for (size_t i = 0; i < kMakeable; ++i) {
    if (kNames[i] == name) return static_cast<WeightFormat>(i);
  }
  return {ErrorCode::kInvalidArgument, "weight format '" + std::string(name) +
                                           "' is unknown; use f32, f16, bf16, bf16_dot, q8 or q4"};
}

bool IsQuantized(WeightFormat format) { return format >= WeightFormat::kQ8; }

bool QuantizesInputs(WeightFormat format) { return IsQuantized(format) && !RoundsInputs(format); }

bool RoundsInputs(WeightFormat format) {
  return format == WeightFormat::kBf16Dot || format == WeightFormat::kMxfp8 ||
         format == WeightFormat::kFp8;
}

}  // namespace kvasir
