// Counter-based random numbers: a draw is a function of (seed, counter), never of what was drawn
// before, so a sampled token does not depend on batch mates, speculation or preemption.
// Deliberately no stateful generator.
#ifndef KVASIR_BASE_RNG_H_
#define KVASIR_BASE_RNG_H_

#include <array>
#include <cstdint>

namespace kvasir {

// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
std::array<uint32_t, 4> Philox4x32(uint64_t key, uint64_t counter, uint64_t stream = 0);

// Uniform in [0, 1) with 53 bits.
double UniformDouble(uint64_t seed, uint64_t counter, uint64_t stream = 0);

}  // namespace kvasir

#endif  // KVASIR_BASE_RNG_H_
