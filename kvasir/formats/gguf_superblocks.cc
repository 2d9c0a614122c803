// The K-quants and IQ4_XS: 256 elements with small integer scales of their own.
// Deliberately in the order of docs/formats/gguf.md, which gives the layouts.
#include "kvasir/formats/gguf_block_bytes.h"
#include "kvasir/formats/gguf_blocks.h"
#include "kvasir/tensor/coded_row.h"

namespace kvasir::gguf {
void DecodeQ2K(const std::byte* block, float* out) {
  const float d = Half(block, 80);
  const float dmin = Half(block, 82);
  for (int k = 0; k < 16; ++k) {  // half k / 8, shift k / 2 % 4, sixteen bytes k % 2
    const uint8_t pair = Byte(block, k);
    const float scale = d * static_cast<float>(Low(pair));
    const float min = dmin * static_cast<float>(High(pair));
    for (int l = 0; l < 16; ++l) {
      const uint8_t codes = Byte(block, 16 + 32 * (k / 8) + 16 * (k % 2) + l);
      out[16 * k + l] = scale * static_cast<float>((codes >> (k / 2 % 4 * 2)) & 3) - min;
    }
  }
}

void DecodeQ3K(const std::byte* block, float* out) {
  const float d = Half(block, 108);
  for (int k = 0; k < 16; ++k) {  // as Q2_K
    const float scale = d * static_cast<float>(ScaleOfQ3K(block + 96, k));
    for (int l = 0; l < 16; ++l) {
      const int at = 16 * (k % 2) + l;
      const int low = (Byte(block, 32 + 32 * (k / 8) + at) >> (k / 2 % 4 * 2)) & 3;
      const bool has_high = ((Byte(block, at) >> (k / 2)) & 1) != 0;
      out[16 * k + l] = scale * static_cast<float>(low - (has_high ? 0 : 4));
    }
  }
}

void DecodeQ4K(const std::byte* block, float* out) {
  const float d = Half(block, 0);
  const float dmin = Half(block, 2);
  for (int b = 0; b < 8; ++b) {
    const ScaleAndMin pair = PairOf(block + 4, b);
    const float scale = d * static_cast<float>(pair.scale);
    const float min = dmin * static_cast<float>(pair.min);
    for (int l = 0; l < 32; ++l) {
      const uint8_t codes = Byte(block, 16 + 32 * (b / 2) + l);
      const int code = b % 2 == 0 ? Low(codes) : High(codes);
      out[32 * b + l] = scale * static_cast<float>(code) - min;
    }
  }
}

void DecodeQ5K(const std::byte* block, float* out) {
  const float d = Half(block, 0);
  const float dmin = Half(block, 2);
  for (int b = 0; b < 8; ++b) {
    const ScaleAndMin pair = PairOf(block + 4, b);
    const float scale = d * static_cast<float>(pair.scale);
    const float min = dmin * static_cast<float>(pair.min);
    for (int l = 0; l < 32; ++l) {
      const uint8_t codes = Byte(block, 48 + 32 * (b / 2) + l);
      const int low = b % 2 == 0 ? Low(codes) : High(codes);
      const int code = low | ((Byte(block, 16 + l) >> b) & 1) << 4;
      out[32 * b + l] = scale * static_cast<float>(code) - min;
    }
  }
}

void DecodeQ6K(const std::byte* block, float* out) {
  const float d = Half(block, 208);
  for (int q = 0; q < 8; ++q) {  // quarter q % 4 of half q / 4
    for (int l = 0; l < 32; ++l) {
      const uint8_t codes = Byte(block, 64 * (q / 4) + 32 * (q % 2) + l);
      const int low = q % 4 < 2 ? Low(codes) : High(codes);
      const int high = (Byte(block, 128 + 32 * (q / 4) + l) >> (2 * (q % 4))) & 3;
      const float scale = static_cast<float>(Load<int8_t>(block, 192 + 2 * q + l / 16));
      out[32 * q + l] = d * scale * static_cast<float>((low | high << 4) - 32);
    }
  }
}

void DecodeIq4Xs(const std::byte* block, float* out) {
  const float d = Half(block, 0);
  for (int b = 0; b < 8; ++b) {
    const float scale = d * static_cast<float>(ScaleOfIq4Xs(block, b));
    for (int j = 0; j < 16; ++j) {
      const uint8_t codes = Byte(block, 8 + 16 * b + j);
      out[32 * b + j] = scale * static_cast<float>(kIq4Values[Low(codes)]);
      out[32 * b + j + 16] = scale * static_cast<float>(kIq4Values[High(codes)]);
    }
  }
}

}  // namespace kvasir::gguf
