// The tensor "rope_freqs.weight" of GGUF files: one divisor of the frequency for every pair.
// Deliberately both ways: what is written for a RopeConfig is known again when it is read, also
// where another converter calculated it in float, so that a file and the folder it was made of turn
// by the same angles, to the bit.
#ifndef KVASIR_FORMATS_GGUF_ROPE_H_
#define KVASIR_FORMATS_GGUF_ROPE_H_

#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/formats/gguf.h"
#include "kvasir/formats/rope_config.h"

namespace kvasir {

inline constexpr std::string_view kGgufRopeDivisors = "rope_freqs.weight";

// [head_dim / 2], empty without the tensor. ERRORS: kCorrupt for another shape and for divisors
// that are not positive.
Result<std::vector<float>> ReadGgufRopeDivisors(const GgufFile& file, int64_t head_dim);

// What a file of this rope holds; empty if metadata says it all. Pairs of a proportional rope that
// do not turn have the divisor 1e30.
std::vector<float> GgufRopeDivisors(const RopeConfig& rope, int head_dim);

// The "rope_parameters" (llama3 or proportional) that have exactly these divisors, or llama3's of
// round numbers that have them but for 1e-5 of each; null if there are none. Llama3's are known up
// to a common factor of L0, low and high: low is 1.
Json RopeParametersOf(const std::vector<float>& divisors, double theta);

}  // namespace kvasir

#endif  // KVASIR_FORMATS_GGUF_ROPE_H_
