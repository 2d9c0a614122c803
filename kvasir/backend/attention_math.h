// How attention multiplies with a cache: a setting of a backend.
// Deliberately only the names: docs/numerics.md has what they compute.
#ifndef KVASIR_BACKEND_ATTENTION_MATH_H_
#define KVASIR_BACKEND_ATTENTION_MATH_H_

#include <string>
#include <string_view>

#include "kvasir/base/result.h"

namespace kvasir {

enum class AttentionMath {
  // Affine caches of 8 and 4 bits in integers, which is faster; everything else in float.
  kInteger,
  // Everything in float.
  kFloat,
};

// ERRORS: kInvalidArgument, listing the names that exist.
inline Result<AttentionMath> AttentionMathFromName(std::string_view name) {
  if (name == "integer") return AttentionMath::kInteger;
  if (name == "float") return AttentionMath::kFloat;
  return {ErrorCode::kInvalidArgument,
          "attention '" + std::string(name) + "' is unknown; use integer or float"};
}

}  // namespace kvasir

#endif  // KVASIR_BACKEND_ATTENTION_MATH_H_
