// How attention multiplies with a cache: a setting of a backend.
// Deliberately only the names: docs/numerics.md has what they compute.
#ifndef KVASIR_BACKEND_ATTENTION_MATH_H_
#define KVASIR_BACKEND_ATTENTION_MATH_H_

#include <string>
#include <string_view>

#include "kvasir/base/result.h"

namespace kvasir {

enum class AttentionMath {
  // Turbo caches and affine ones of 4 bits as kInt8. Other affine ones as kInt16 for the queries
  // for which a block is decisive (kDecisiveShare), else as kInt8. What this costs:
  // docs/benchmarks.md, "Real models".
  kAuto,
  // Affine and turbo caches in exact sums of queries and weights that are rounded to two bytes,
  // with turbo's levels rounded to one; turbo, and 2, 3, 5 and 6 bits, only if heads are multiples
  // of kWidenedDims. Caches of f16 in the same, rounded to 14 bits themselves, if heads are
  // multiples of 16 dims; keys that are made of values likewise, unless those are f32. Caches of
  // bf16 in pairs of products, of queries and weights that are rounded to bf16, if heads have an
  // even number of dims. Everything else in float.
  kInt16,
  // The same with one byte for affine and turbo caches, which is twice as fast again in prefill.
  kInt8,
  // Everything in float.
  kFloat,
};

// ERRORS: kInvalidArgument, listing the names that exist.
inline Result<AttentionMath> AttentionMathFromName(std::string_view name) {
  if (name == "auto") return AttentionMath::kAuto;
  if (name == "int16") return AttentionMath::kInt16;
  if (name == "int8") return AttentionMath::kInt8;
  if (name == "float") return AttentionMath::kFloat;
  return {ErrorCode::kInvalidArgument,
          "attention '" + std::string(name) + "' is unknown; use auto, int16, int8 or float"};
}

}  // namespace kvasir

#endif  // KVASIR_BACKEND_ATTENTION_MATH_H_
