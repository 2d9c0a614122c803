// GGUF's types of one to two bits: one scale a block, and codes that count from -1, or -1 and 1.
// Deliberately kept as affine weights, code * d - d of two bits and code * 2d - d of one, which are
// the same numbers to the bit.
#include <cmath>

#include "kvasir/formats/gguf_block_bytes.h"
#include "kvasir/formats/gguf_blocks.h"
#include "kvasir/formats/gguf_codes.h"

namespace kvasir::gguf {
namespace {

constexpr uint16_t kF16Sign = 0x8000;

// -d and d are codes 0 and 1.
void UnpackQ1_0(const std::byte* block, uint8_t* codes) {
  for (int j = 0; j < 128; ++j) codes[j] = Byte(block, 2 + j / 8) >> (j % 8) & 1;
}

void UnpackQ2_0(const std::byte* block, uint8_t* codes) {
  for (int j = 0; j < 64; ++j) codes[j] = Byte(block, 2 + j / 4) >> (j % 4 * 2) & 3;
}

// Pair k of the 32 bytes of each half is 32 codes in order.
void UnpackTq2_0(const std::byte* block, uint8_t* codes) {
  for (int j = 0; j < 256; ++j) {
    codes[j] = Byte(block, j / 128 * 32 + j % 32) >> (j % 128 / 32 * 2) & 3;
  }
}

// `digits` codes of each of `bytes` bytes, which are fractions of 256 in base 3, the first digit of
// all of them first.
uint8_t* UnpackDigits(const std::byte* from, int bytes, int digits, uint8_t* codes) {
  uint8_t power = 1;
  for (int n = 0; n < digits; ++n, power = static_cast<uint8_t>(power * 3)) {
    for (int m = 0; m < bytes; ++m) {
      const auto rest = static_cast<uint8_t>(Byte(from, m) * power);
      *codes++ = static_cast<uint8_t>(rest * 3 >> 8);
    }
  }
  return codes;
}

void UnpackTq1_0(const std::byte* block, uint8_t* codes) {
  codes = UnpackDigits(block, 32, 5, codes);
  codes = UnpackDigits(block + 32, 16, 5, codes);
  UnpackDigits(block + 48, 4, 4, codes);
}

// A block of `count` codes whose scale is `at` bytes behind its begin.
template <int count, int at, void (*unpack)(const std::byte*, uint8_t*)>
void DecodeSmall(const std::byte* block, float* out) {
  uint8_t codes[count];
  unpack(block, codes);
  const float d = Half(block, at);
  for (int j = 0; j < count; ++j) out[j] = static_cast<float>(codes[j] - 1) * d;
}

template <int count, int at, void (*unpack)(const std::byte*, uint8_t*)>
void CodesOfSmall(const std::byte* block, const BlockCodes& out) {
  unpack(block, out.codes);
  const auto d = Load<uint16_t>(block, at);
  for (int group = 0; group < (count + kSmallCodeGroup - 1) / kSmallCodeGroup; ++group) {
    out.scales[group] = d;
    out.biases[group] = d ^ kF16Sign;
  }
}

}  // namespace

void DecodeQ1_0(const std::byte* block, float* out) {
  uint8_t codes[128];
  UnpackQ1_0(block, codes);
  const float d = Half(block, 0);
  for (int j = 0; j < 128; ++j) out[j] = codes[j] != 0 ? d : -d;
}
void DecodeQ2_0(const std::byte* block, float* out) { DecodeSmall<64, 0, UnpackQ2_0>(block, out); }
void DecodeTq1_0(const std::byte* block, float* out) {
  DecodeSmall<256, 52, UnpackTq1_0>(block, out);
}
void DecodeTq2_0(const std::byte* block, float* out) {
  DecodeSmall<256, 64, UnpackTq2_0>(block, out);
}

void CodesOfQ1_0(const std::byte* block, const BlockCodes& out) {
  UnpackQ1_0(block, out.codes);
  out.scales[0] = FloatToF16(2 * Half(block, 0));
  out.biases[0] = Load<uint16_t>(block, 0) ^ kF16Sign;
}
bool IsQ1_0Kept(const std::byte* block) { return std::fabs(Half(block, 0)) < 32768; }
void CodesOfQ2_0(const std::byte* block, const BlockCodes& out) {
  CodesOfSmall<64, 0, UnpackQ2_0>(block, out);
}
void CodesOfTq1_0(const std::byte* block, const BlockCodes& out) {
  CodesOfSmall<256, 52, UnpackTq1_0>(block, out);
}
void CodesOfTq2_0(const std::byte* block, const BlockCodes& out) {
  CodesOfSmall<256, 64, UnpackTq2_0>(block, out);
}

}  // namespace kvasir::gguf
