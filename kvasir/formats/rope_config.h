// How rotary position embeddings are scaled, as a checkpoint's config.json says it.
// Deliberately only the parameters: the frequencies are computed by the model layer.
#ifndef KVASIR_FORMATS_ROPE_CONFIG_H_
#define KVASIR_FORMATS_ROPE_CONFIG_H_

#include <cstdint>
#include <string_view>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"

namespace kvasir {

enum class RopeType { kDefault, kLinear, kLlama3, kYarn, kProportional };
// "default", "linear", "llama3", "yarn", "proportional"
std::string_view RopeTypeName(RopeType type);

// With d = head_dim: inv_freq[i] = theta^(-2i/d), i < d/2, then changed by type. Element i pairs
// with i + d/2 ("rotate half") in every supported family.
struct RopeConfig {
  double theta = 10000.0;
  RopeType type = RopeType::kDefault;
  double factor = 1.0;  // >= 1; linear and proportional: inv_freq / factor
  // This part of a head turns. proportional: the first pairs; inv_freq of the others is 0. All
  // other types: the first elements, as if they were a head of their own, so that d is that many.
  double rotated_fraction = 1.0;
  // Context length before scaling, L0. Set for llama3 and yarn, else 0.
  int64_t original_max_position_embeddings = 0;
  // llama3 only: wavelengths below L0 / high are kept, above L0 / low divided by factor.
  double low_freq_factor = 1.0;
  double high_freq_factor = 4.0;
  // yarn only (Peng et al. 2023, section 3.4): the ramp's ends, in rotations over L0.
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncates = true;  // its ends to whole dimensions
  // Multiplies cos and sin; already resolved from attention_factor, mscale or 0.1 ln(factor) + 1.
  double attention_factor = 1.0;
  // [head_dim / 2]: inv_freq[i] is divided by element i, after the type's change. Empty: all 1.
  // GGUF files have llama3 scaling in this form.
  std::vector<float> frequency_divisors;

  // Reads one "rope_scaling" or "rope_parameters" object. `field` is what errors call it; null
  // means no scaling. `theta` is used unless the object has a rope_theta of its own.
  // `max_position_embeddings` is yarn's fallback for L0, `rotated_fraction` that of the object's.
  // ERRORS: kCorrupt; kUnsupported for other types. "dynamic" is refused for good: its frequencies
  // depend on the length of the sequence, so cached keys would have to be computed anew.
  static Result<RopeConfig> Parse(const Json& object, std::string_view field, double theta,
                                  int64_t max_position_embeddings, double rotated_fraction = 1.0);

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

// Elements of a head that turn, the first ones, where the type is not kProportional; the others'
// pairs have no frequency.
int RotatedElements(const RopeConfig& rope, int head_dim);

// A frequency as llama3's type changes it. REQUIRES: rope.type is kLlama3.
double Llama3Scaled(double frequency, const RopeConfig& rope);

}  // namespace kvasir

#endif  // KVASIR_FORMATS_ROPE_CONFIG_H_
