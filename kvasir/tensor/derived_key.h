// Keys that are not stored because the values say them: K = RoPE(key_norm * V), as where a model
// computes both from one projection (Gemma 4's attention_k_eq_v).
// Deliberately scalar, the definition for every codec and position: kernels/derived_keys.h has the
// same bits in less time.
#ifndef KVASIR_TENSOR_DERIVED_KEY_H_
#define KVASIR_TENSOR_DERIVED_KEY_H_

#include <cstdint>
#include <span>

#include "kvasir/base/token.h"
#include "kvasir/tensor/kv_layout.h"

namespace kvasir {

struct KvKeyDerivation {
  std::span<const float> key_norm;  // [key_dim]
  std::span<const float> inv_freq;  // [key_dim / 2], radians per position, half-split pairing
};

// value and key are [heads, key_dim] of one token. Every product is one float32 rounding; angles
// are position * inv_freq in double precision, their sine and cosine rounded to float32, then
// x' = fma(-y, sin, x * cos), y' = fma(x, sin, y * cos). Pairs of frequency 0 stay as they are.
void DeriveKey(const KvKeyDerivation& derivation, Position position, std::span<const float> value,
               std::span<float> key);

// The keys of the slots [begin, end) of one head of a block, as an f32 key plane [key_dim][64];
// other slots become 0. values: that head of the value plane; positions: of the 64 slots.
void DeriveKeyTile(const KvKeyDerivation& derivation, const KvBlockLayout& layout,
                   const std::byte* values, std::span<const Position, kBlockTokens> positions,
                   int begin, int end, float* tile);

}  // namespace kvasir

#endif  // KVASIR_TENSOR_DERIVED_KEY_H_
