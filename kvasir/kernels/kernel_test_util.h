// What the kernel tests share: awkward random numbers and comparisons of bits.
// Deliberately not a fixture: each test names the tables and shapes it walks.
#ifndef KVASIR_KERNELS_KERNEL_TEST_UTIL_H_
#define KVASIR_KERNELS_KERNEL_TEST_UTIL_H_

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kvasir/kernels/kernels.h"
#include "kvasir/kernels/table_parts.h"

namespace kvasir::testing {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

inline std::vector<float> RandomFloats(size_t count, uint32_t seed, float scale = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, scale);
  std::vector<float> out(count);
  for (float& value : out) value = normal(random);
  return out;
}

// Normal numbers with zeros of both signs, denormals and tiny and huge ones strewn in.
inline std::vector<float> AwkwardFloats(size_t count, uint32_t seed) {
  constexpr float kStrewn[] = {0.0f,     -0.0f,    0x1p-149f, -0x1p-140f, 0x1p-126f,
                               0x1p-24f, 65504.0f, 65520.0f,  -1e30f,     3.0e38f};
  std::mt19937 random(seed);
  std::vector<float> out = RandomFloats(count, seed + 1);
  for (float& value : out) {
    if (random() % 5 == 0) value = kStrewn[random() % std::size(kStrewn)];
  }
  return out;
}

// The same bits. A NaN equals any NaN: which payload survives an operation on two of them is the
// processor's choice, and no kernel looks at payloads.
inline bool SameBits(float a, float b) {
  if (std::isnan(a) && std::isnan(b)) return true;
  return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

inline void ExpectSameBits(const std::vector<float>& expected, const std::vector<float>& actual,
                           const std::string& what) {
  ASSERT_EQ(expected.size(), actual.size()) << what;
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_TRUE(SameBits(expected[i], actual[i]))
        << what << ", element " << i << ": expected " << std::hexfloat << expected[i] << ", got "
        << actual[i];
  }
}

// Of rows of a block's scores, those of the first half of its tokens.
inline std::vector<float> FirstHalves(const std::vector<float>& scores) {
  std::vector<float> halves;
  for (auto row = scores.begin(); row != scores.end(); row += kBlockTokens) {
    halves.insert(halves.end(), row, row + kHalfBlock);
  }
  return halves;
}

// Numbers in [-4, 4) from integer arithmetic alone: the same bits on every machine.
inline std::vector<float> PortableFloats(size_t count, uint32_t seed) {
  std::vector<float> out(count);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t mixed = (static_cast<uint32_t>(i) + seed * 7919u) * 2654435761u;
    out[i] = static_cast<float>(mixed >> 16) / 8192.0f - 4.0f;
  }
  return out;
}

// FNV-1a over the bits, to pin results to a constant.
inline uint64_t HashBits(const std::vector<float>& values, uint64_t hash = 0xCBF29CE484222325u) {
  for (float value : values) {
    hash = (hash ^ std::bit_cast<uint32_t>(value)) * 0x100000001B3u;
  }
  return hash;
}

// The tables to compare with the scalar one, which is the first.
inline std::vector<const KernelTable*> SimdTables() {
  std::vector<const KernelTable*> tables;
  for (Isa isa : SupportedIsas()) {
    if (isa != Isa::kScalar) tables.push_back(&KernelsFor(isa));
  }
  return tables;
}

// SimdTables, and that of AVX-512 with what it has on other CPUs: the other way to multiply pairs
// of bf16 (VDPBF16PS or two multiply-adds), many rows of q8 and q4 with planes or without, the
// fewest rows of other formats that take planes.
inline std::vector<const KernelTable*> AllTables() {
  static const std::vector<KernelTable> kOthers = [] {
    std::vector<KernelTable> others;
    for (const KernelTable* table : SimdTables()) {
      const Isa isa = table->isa;
      if (isa != Isa::kAvx512) continue;
      KernelTable other = *table;
      FillFloatMatmul(isa, &other);
      FillPairAttention(isa, &other);
      if (other.round_rows == table->round_rows && FillBf16DotMatmul(isa, &other)) {
        FillBf16DotAttention(isa, &other);
      }
      constexpr auto kQ8 = static_cast<size_t>(WeightFormat::kQ8);
      FillPlanes(isa, &other);
      if (other.matmul[kQ8] == table->matmul[kQ8]) {
        FillQuantMatmul(isa, &other);
        FillAffineMatmul(isa, &other);
        FillBlockMatmul(isa, &other);
        FillSuperblockMatmul(isa, &other);
      }
      others.push_back(other);
    }
    return others;
  }();
  std::vector<const KernelTable*> tables = SimdTables();
  for (const KernelTable& table : kOthers) tables.push_back(&table);
  return tables;
}
inline const KernelTable& Oracle() { return KernelsFor(Isa::kScalar); }

}  // namespace kvasir::testing

#endif  // KVASIR_KERNELS_KERNEL_TEST_UTIL_H_
