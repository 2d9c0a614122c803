#include "kvasir/formats/gguf_codes.h"

#include <bit>
#include <cstring>

#include "kvasir/formats/gguf_block_bytes.h"
#include "kvasir/tensor/coded_row.h"

namespace kvasir::gguf {
namespace {

uint16_t Bits(const std::byte* block, int at) { return Load<uint16_t>(block, at); }

// Sixteen bytes of low and high codes at `from` as 32 codes in order.
void Nibbles(const std::byte* from, uint8_t* codes) {
  for (int j = 0; j < 16; ++j) {
    const uint8_t pair = Byte(from, j);
    codes[j] = pair & 15;
    codes[j + 16] = pair >> 4;
  }
}

void AddFifthBits(uint32_t bits, uint8_t* codes) {
  for (int j = 0; j < 32; ++j) codes[j] |= static_cast<uint8_t>((bits >> j & 1) << 4);
}

// Low codes of 32 bytes are 32 codes in order, high codes the next 32.
void SuperNibbles(const std::byte* from, uint8_t* codes) {
  for (int b = 0; b < 4; ++b) {
    for (int l = 0; l < 32; ++l) {
      const uint8_t pair = Byte(from, 32 * b + l);
      codes[64 * b + l] = pair & 15;
      codes[64 * b + 32 + l] = pair >> 4;
    }
  }
}

// d, dmin and the eight pairs of Q4_K and Q5_K.
void SuperScales(const std::byte* block, const BlockCodes& out) {
  *out.scales = Bits(block, 0);
  *out.biases = Bits(block, 2);
  for (int b = 0; b < 8; ++b) {
    const ScaleAndMin pair = PairOf(block + 4, b);
    out.sub_scales[b] = static_cast<uint8_t>(pair.scale);
    out.sub_mins[b] = static_cast<uint8_t>(pair.min);
  }
}

}  // namespace

void CodesOfQ8_0(const std::byte* block, const BlockCodes& out) {
  *out.scales = Bits(block, 0);
  for (int j = 0; j < 32; ++j) out.codes[j] = Byte(block, 2 + j) ^ 0x80;
}

void CodesOfQ4_0(const std::byte* block, const BlockCodes& out) {
  *out.scales = Bits(block, 0);
  Nibbles(block + 2, out.codes);
}

void CodesOfQ4_1(const std::byte* block, const BlockCodes& out) {
  *out.scales = Bits(block, 0);
  *out.biases = Bits(block, 2);
  Nibbles(block + 4, out.codes);
}

void CodesOfQ5_0(const std::byte* block, const BlockCodes& out) {
  *out.scales = Bits(block, 0);
  Nibbles(block + 6, out.codes);
  AddFifthBits(Load<uint32_t>(block, 2), out.codes);
}

void CodesOfQ5_1(const std::byte* block, const BlockCodes& out) {
  *out.scales = Bits(block, 0);
  *out.biases = Bits(block, 2);
  Nibbles(block + 8, out.codes);
  AddFifthBits(Load<uint32_t>(block, 4), out.codes);
}

void CodesOfIq4Nl(const std::byte* block, const BlockCodes& out) {
  *out.scales = Bits(block, 0);
  Nibbles(block + 2, out.codes);
}

void CodesOfMxfp4(const std::byte* block, const BlockCodes& out) {
  *out.sub_scales = Byte(block, 0);
  Nibbles(block + 1, out.codes);
}

void CodesOfNvfp4(const std::byte* block, const BlockCodes& out) {
  for (int k = 0; k < 4; ++k) {
    out.sub_scales[k] = ScaleOfNvfp4(block, k);
    for (int j = 0; j < 8; ++j) {
      const uint8_t pair = Byte(block, 4 + 8 * k + j);
      out.codes[16 * k + j] = pair & 15;
      out.codes[16 * k + 8 + j] = pair >> 4;
    }
  }
}

void CodesOfQ2K(const std::byte* block, const BlockCodes& out) {
  *out.scales = Bits(block, 80);
  *out.biases = Bits(block, 82);
  for (int k = 0; k < 16; ++k) {
    out.sub_scales[k] = Byte(block, k) & 15;
    out.sub_mins[k] = Byte(block, k) >> 4;
    for (int l = 0; l < 16; ++l) {
      const uint8_t four = Byte(block, 16 + 32 * (k / 8) + 16 * (k % 2) + l);
      out.codes[16 * k + l] = (four >> (k / 2 % 4 * 2)) & 3;
    }
  }
}

void CodesOfIq4Xs(const std::byte* block, const BlockCodes& out) {
  *out.scales = Bits(block, 0);
  for (int b = 0; b < 8; ++b) {
    out.sub_scales[b] = static_cast<uint8_t>(ScaleOfIq4Xs(block, b));
    Nibbles(block + 8 + 16 * b, out.codes + 32 * b);
  }
}

void CodesOfQ3K(const std::byte* block, const BlockCodes& out) {
  *out.scales = Bits(block, 108);
  for (int k = 0; k < 16; ++k) {
    out.sub_scales[k] = static_cast<uint8_t>(ScaleOfQ3K(block + 96, k));
    for (int l = 0; l < 16; ++l) {
      const int at = 16 * (k % 2) + l;
      const int low = (Byte(block, 32 + 32 * (k / 8) + at) >> (k / 2 % 4 * 2)) & 3;
      const int high = (Byte(block, at) >> (k / 2)) & 1;
      out.codes[16 * k + l] = static_cast<uint8_t>(low + 4 * high);
    }
  }
}

void CodesOfQ4K(const std::byte* block, const BlockCodes& out) {
  SuperScales(block, out);
  SuperNibbles(block + 16, out.codes);
}

void CodesOfQ5K(const std::byte* block, const BlockCodes& out) {
  SuperScales(block, out);
  SuperNibbles(block + 48, out.codes);
  for (int b = 0; b < 8; ++b) {
    for (int l = 0; l < 32; ++l) {
      out.codes[32 * b + l] |= static_cast<uint8_t>((Byte(block, 16 + l) >> b & 1) << 4);
    }
  }
}

void CodesOfQ6K(const std::byte* block, const BlockCodes& out) {
  *out.scales = Bits(block, 208);
  std::memcpy(out.sub_scales, block + 192, 16);
  for (int half = 0; half < 2; ++half) {
    const std::byte* const low = block + 64 * half;
    const std::byte* const high = block + 128 + 32 * half;
    uint8_t* const codes = out.codes + 128 * half;
    for (int l = 0; l < 32; ++l) {
      const uint8_t bits = Byte(high, l);
      codes[l] = static_cast<uint8_t>((Byte(low, l) & 15) | (bits & 3) << 4);
      codes[l + 32] = static_cast<uint8_t>((Byte(low, l + 32) & 15) | (bits >> 2 & 3) << 4);
      codes[l + 64] = static_cast<uint8_t>(Byte(low, l) >> 4 | (bits >> 4 & 3) << 4);
      codes[l + 96] = static_cast<uint8_t>(Byte(low, l + 32) >> 4 | (bits >> 6) << 4);
    }
  }
}

}  // namespace kvasir::gguf
