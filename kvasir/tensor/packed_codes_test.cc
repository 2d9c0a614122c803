#include "kvasir/tensor/packed_codes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace kvasir {
namespace {

constexpr int kWidths[] = {2, 3, 4, 5, 6, 8};

// Bit `bit` of a lane of a unit, straight from the layout comment of kv_codec.h.
uint32_t BitOf(const std::vector<uint32_t>& plane, int bits, int64_t unit, int lane, int bit) {
  const size_t word = static_cast<size_t>(unit * bits * 16 + bit / 32 * 16 + lane);
  return plane[word] >> (bit % 32) & 1;
}

uint32_t CodeOf(const std::vector<uint32_t>& plane, int bits, int64_t unit, int lane, int i) {
  uint32_t code = 0;
  for (int bit = 0; bit < bits; ++bit) {
    code |= BitOf(plane, bits, unit, lane, i * bits + bit) << bit;
  }
  return code;
}

struct Planes {
  std::vector<uint32_t> keys;
  std::vector<uint32_t> values;
  std::vector<uint32_t> codes;  // [dim][64]
};

// Random codes stored in a random order over planes full of other bits.
Planes StoreAll(int bits, int dim) {
  std::mt19937 random(1);
  const size_t words = static_cast<size_t>(dim * bits * 2);
  Planes planes{std::vector<uint32_t>(words, 0xA5A5A5A5u), std::vector<uint32_t>(words, ~0u),
                std::vector<uint32_t>(static_cast<size_t>(dim * kBlockTokens))};
  std::vector<int> order(planes.codes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
  std::shuffle(order.begin(), order.end(), random);
  auto* keys = reinterpret_cast<std::byte*>(planes.keys.data());
  auto* values = reinterpret_cast<std::byte*>(planes.values.data());
  for (const int i : order) {
    const uint32_t code = random() & ((1u << bits) - 1);
    planes.codes[static_cast<size_t>(i)] = code;
    StoreKeyCode(keys, bits, i / kBlockTokens, i % kBlockTokens, code);
    StoreValueCode(values, bits, i / kBlockTokens, i % kBlockTokens, code);
  }
  return planes;
}

TEST(PackedCodes, LieWhereTheLayoutSays) {
  constexpr int kDim = 48;
  for (const int bits : kWidths) {
    const Planes planes = StoreAll(bits, kDim);
    const auto* keys = reinterpret_cast<const std::byte*>(planes.keys.data());
    const auto* values = reinterpret_cast<const std::byte*>(planes.values.data());
    for (int d = 0; d < kDim; ++d) {
      for (int t = 0; t < kBlockTokens; ++t) {
        const uint32_t code = planes.codes[static_cast<size_t>(d * kBlockTokens + t)];
        ASSERT_EQ(CodeOf(planes.keys, bits, d / 8, t % 16, t / 16 * 8 + d % 8), code);
        ASSERT_EQ(CodeOf(planes.values, bits, d / 16 * 2 + t / 32, d % 16, t % 32), code);
        ASSERT_EQ(LoadKeyCode(keys, bits, d, t), code);
        ASSERT_EQ(LoadValueCode(values, bits, d, t), code);
      }
    }
  }
}

TEST(PackedCodes, RowsAreOneBitStream) {
  std::mt19937 random(2);
  for (const int bits : kWidths) {
    for (const size_t dim : {16u, 32u, 80u, 128u}) {
      std::vector<uint8_t> codes(dim);
      for (uint8_t& code : codes) code = static_cast<uint8_t>(random() & ((1u << bits) - 1));
      std::vector<uint32_t> words(static_cast<size_t>(RowWords(static_cast<int64_t>(dim), bits)));
      ASSERT_EQ(words.size(), (dim * static_cast<size_t>(bits) + 31) / 32);
      words.assign(words.size(), ~0u);
      PackRow(codes, bits, words.data());
      for (size_t bit = 0; bit < words.size() * 32; ++bit) {
        const size_t i = bit / static_cast<size_t>(bits);
        const uint32_t expected = i < dim ? codes[i] >> (bit % static_cast<size_t>(bits)) & 1u : 0u;
        ASSERT_EQ(words[bit / 32] >> (bit % 32) & 1, expected) << "bit " << bit;
      }
      std::vector<uint8_t> back(dim);
      UnpackRow(words.data(), bits, back);
      EXPECT_EQ(back, codes);
    }
  }
}

}  // namespace
}  // namespace kvasir
