#include "kvasir/tensor/mxfp8.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "kvasir/tensor/bf16_pairs.h"
#include "kvasir/tensor/dtype.h"

namespace kvasir::mxfp8 {

float Value(uint8_t code, uint8_t scale) {
  if (scale == kNanScale) return std::numeric_limits<float>::quiet_NaN();
  // The same bits as an f16 are 2^-8 of it, as f16 counts its exponents from 15 and E4M3 from 7.
  const auto half = static_cast<uint16_t>((code & 0x80) << 8 | (code & 0x7F) << 7);
  return F16ToFloat(half) * std::bit_cast<float>((uint32_t{scale} + 8) << 23);
}

void StoreGroup(uint8_t (&codes)[kQuantGroup], uint8_t* scale) {
  const auto is_nan = [](uint8_t code) { return (code & 0x7F) == kNanCode; };
  if (std::any_of(codes, codes + kQuantGroup, is_nan)) {
    std::fill_n(codes, kQuantGroup, kNanCode);
    *scale = kNanScale;
    return;
  }
  uint8_t least = 1;  // magnitudes order as their codes
  while (least < kNanCode && Value(least, *scale) < bf16_pairs::kLeastWeight) ++least;
  for (uint8_t& code : codes) {
    if ((code & 0x7F) < least) code = 0;
  }
}

}  // namespace kvasir::mxfp8
