#include "kvasir/formats/gguf_blocks.h"

#include "kvasir/formats/gguf_block_bytes.h"
#include "kvasir/tensor/coded_row.h"

namespace kvasir::gguf {
namespace {

constexpr int kHalfBlock = 16;  // byte j holds elements j (low nibble) and j + 16 (high)

// Bit `j` of the fifth bits, where the nibble lacks it.
int FifthBit(uint32_t bits, int j) { return static_cast<int>((bits >> j) & 1) << 4; }

}  // namespace

void DecodeF32(const std::byte* block, float* out) { *out = Load<float>(block, 0); }
void DecodeF16(const std::byte* block, float* out) { *out = Half(block, 0); }
void DecodeBf16(const std::byte* block, float* out) {
  *out = Bf16ToFloat(Load<uint16_t>(block, 0));
}

void DecodeQ8_0(const std::byte* block, float* out) {
  const float d = Half(block, 0);
  for (int j = 0; j < 32; ++j) out[j] = static_cast<float>(Load<int8_t>(block, 2 + j)) * d;
}

void DecodeQ4_0(const std::byte* block, float* out) {
  const float d = Half(block, 0);
  for (int j = 0; j < kHalfBlock; ++j) {
    const uint8_t codes = Byte(block, 2 + j);
    out[j] = static_cast<float>(Low(codes) - 8) * d;
    out[j + kHalfBlock] = static_cast<float>(High(codes) - 8) * d;
  }
}

void DecodeQ4_1(const std::byte* block, float* out) {
  const float d = Half(block, 0);
  const float m = Half(block, 2);
  for (int j = 0; j < kHalfBlock; ++j) {
    const uint8_t codes = Byte(block, 4 + j);
    out[j] = static_cast<float>(Low(codes)) * d + m;
    out[j + kHalfBlock] = static_cast<float>(High(codes)) * d + m;
  }
}

void DecodeQ5_0(const std::byte* block, float* out) {
  const float d = Half(block, 0);
  const uint32_t fifth = Load<uint32_t>(block, 2);
  for (int j = 0; j < kHalfBlock; ++j) {
    const uint8_t codes = Byte(block, 6 + j);
    out[j] = static_cast<float>((Low(codes) | FifthBit(fifth, j)) - 16) * d;
    out[j + kHalfBlock] =
        static_cast<float>((High(codes) | FifthBit(fifth, j + kHalfBlock)) - 16) * d;
  }
}

void DecodeQ5_1(const std::byte* block, float* out) {
  const float d = Half(block, 0);
  const float m = Half(block, 2);
  const uint32_t fifth = Load<uint32_t>(block, 4);
  for (int j = 0; j < kHalfBlock; ++j) {
    const uint8_t codes = Byte(block, 8 + j);
    out[j] = static_cast<float>(Low(codes) | FifthBit(fifth, j)) * d + m;
    out[j + kHalfBlock] = static_cast<float>(High(codes) | FifthBit(fifth, j + kHalfBlock)) * d + m;
  }
}

void DecodeIq4Nl(const std::byte* block, float* out) {
  const float d = Half(block, 0);
  for (int j = 0; j < kHalfBlock; ++j) {
    const uint8_t codes = Byte(block, 2 + j);
    out[j] = d * static_cast<float>(kIq4Values[Low(codes)]);
    out[j + kHalfBlock] = d * static_cast<float>(kIq4Values[High(codes)]);
  }
}

void DecodeMxfp4(const std::byte* block, float* out) {
  // Elements doubled, so that they are integers, and the scale halved: 2^(e - 128).
  const float d = MicroscaleOf(Byte(block, 0), WeightFormat::kMxfp4);
  for (int j = 0; j < kHalfBlock; ++j) {
    const uint8_t codes = Byte(block, 1 + j);
    out[j] = static_cast<float>(kE2m1Values[Low(codes)]) * d;
    out[j + kHalfBlock] = static_cast<float>(kE2m1Values[High(codes)]) * d;
  }
}

void DecodeNvfp4(const std::byte* block, float* out) {
  for (int k = 0; k < 4; ++k) {
    const float d = MicroscaleOf(ScaleOfNvfp4(block, k), WeightFormat::kNvfp4);
    for (int j = 0; j < 8; ++j) {
      const uint8_t codes = Byte(block, 4 + 8 * k + j);
      out[16 * k + j] = static_cast<float>(kE2m1Values[Low(codes)]) * d;
      out[16 * k + 8 + j] = static_cast<float>(kE2m1Values[High(codes)]) * d;
    }
  }
}

}  // namespace kvasir::gguf
