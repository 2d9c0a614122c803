#include "kvasir/base/rng.h"

namespace kvasir {

std::array<uint32_t, 4> Philox4x32(uint64_t key, uint64_t counter, uint64_t stream) {
  // Multipliers and Weyl increments of the paper, table 2.
  constexpr uint64_t kMultiplier0 = 0xD2511F53;
  constexpr uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9;
  constexpr uint32_t kWeyl1 = 0xBB67AE85;
  std::array<uint32_t, 4> x = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                               static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32)};
  uint32_t key0 = static_cast<uint32_t>(key);
  uint32_t key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = kMultiplier0 * x[0];
    const uint64_t product1 = kMultiplier1 * x[2];
    x = {static_cast<uint32_t>(product1 >> 32) ^ x[1] ^ key0, static_cast<uint32_t>(product1),
         static_cast<uint32_t>(product0 >> 32) ^ x[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return x;
}

double UniformDouble(uint64_t seed, uint64_t counter, uint64_t stream) {
  const auto x = Philox4x32(seed, counter, stream);
  const uint64_t bits = (static_cast<uint64_t>(x[0]) << 32) | x[1];
  return static_cast<double>(bits >> 11) * 0x1.0p-53;
}

}  // namespace kvasir
