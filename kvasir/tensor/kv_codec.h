// How one row of K or V (one head of one token) is stored: a small value that names a format.
// Deliberately only names and sizes: affine_codec.h and turbo_codec.h hold the arithmetic.
#ifndef KVASIR_TENSOR_KV_CODEC_H_
#define KVASIR_TENSOR_KV_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "kvasir/base/result.h"

namespace kvasir {

// One attention tile: 64 scores are four AVX-512 vectors, and 64 rows of 128 halves (16 KiB) fit
// the first-level cache twice over.
inline constexpr int kBlockTokens = 64;
// The blocks that so many rows fill or begin.
inline constexpr int64_t BlocksUpTo(int64_t rows) {
  return (rows + kBlockTokens - 1) / kBlockTokens;
}

// A value; equal codecs store equal rows in equal bytes.
//
// One head of a block (64 rows of `dim` elements) lies in memory as
//
//   f32, f16, bf16   keys [dim][64], values [64][dim]
//   affine, turbo    codes, then parameters
//     codes          units of 512 codes of `bits` bits: bits x 16 little-endian u32 words
//                    [bits][16]. Lane l of a unit is the bit stream of its words [0][l], [1][l],
//                    ... lowest bit first; code i of the lane (0 <= i < 32) is bits [i*b, (i+1)*b).
//       keys         unit u holds the dims [8u, 8u + 8): the code of dim d and slot t is in lane
//                    t % 16 at i = t / 16 * 8 + d % 8. dim / 8 units.
//       values       unit 2v + h holds the dims [16v, 16v + 16) of the slots [32h, 32h + 32): the
//                    code of slot t and dim d is in lane d % 16 at i = t % 32. dim / 8 units.
//     parameters     affine: scales [dim / group][64], then biases [dim / group][64]
//                    turbo: norms f32 [64]
//   from-value       nothing: keys are derived from the values (derived_key.h)
//
// so that every vector of 16 codes is one shift (and a mask) of one or two words, whatever the
// width, every bit of a code plane is used, and what lies in one word of 8 or 4 bit codes is what
// one sum adds up: neighbouring dims of a key, neighbouring slots of a value dim.
struct KvCodec {
  enum class Kind : uint8_t { kF32, kF16, kBf16, kAffine, kTurbo, kFromValue };
  enum class Scales : uint8_t { kF16, kF32 };

  Kind kind = Kind::kF16;
  // kAffine: 2, 3, 4, 5, 6 or 8; kTurbo: 2, 3 or 4; otherwise 0.
  uint8_t bits = 0;
  // kAffine: elements that share a scale and a bias, 32, 64 or 128; otherwise 0.
  uint16_t group = 0;
  // kAffine: how scales and biases are stored; MLX stores them in the type of its input.
  Scales scales = Scales::kF16;
  // kAffine: rows are rotated (rotation.h) before they are quantized. kTurbo always rotates.
  bool rotated = false;

  static KvCodec Affine(int bits, int group, Scales scales = Scales::kF16, bool rotated = false);
  static KvCodec Turbo(int bits);

  // f32, f16 or bf16: one number per element.
  bool is_dense() const { return kind <= Kind::kBf16; }
  // Codes in units, as above.
  bool is_packed() const { return kind == Kind::kAffine || kind == Kind::kTurbo; }
  // Attention works on rotated queries (keys) or yields rotated sums (values).
  bool rotates() const { return kind == Kind::kTurbo || rotated; }
  // Every code is an index into a table of at most 16 floats.
  int levels() const { return 1 << bits; }

  // Bytes of one element. REQUIRES: is_dense().
  size_t ElementBytes() const { return kind == Kind::kF32 ? 4 : 2; }
  // Bytes of the codes of 64 rows. REQUIRES: is_packed().
  size_t CodeBytes(int64_t dim) const { return static_cast<size_t>(dim) * bits * 8; }
  // Bytes of one scale or bias.
  size_t ScaleBytes() const { return scales == Scales::kF32 ? 4 : 2; }
  // Bytes of 64 rows of one head.
  size_t HeadBytes(int64_t dim) const;

  // "f32", "f16", "bf16", "affine4:64", "turbo3", "from-value"; affine with f32 scales ends in
  // "+f32", rotated in "+rot". FromName reads what name writes.
  std::string name() const;
  // ERRORS: kInvalidArgument, listing the forms that exist.
  static Result<KvCodec> FromName(std::string_view name);
  // OK if rows of `dim` elements can be stored. Affine: dim is a multiple of the group; packed:
  // of 16, and turbo at most 512. ERRORS: kInvalidArgument, saying what would fit.
  Status Validate(int64_t dim) const;

  friend bool operator==(const KvCodec&, const KvCodec&) = default;
};

}  // namespace kvasir

#endif  // KVASIR_TENSOR_KV_CODEC_H_
