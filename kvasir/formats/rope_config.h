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

enum class RopeType { kDefault, kLinear, kLlama3, kYarn, kProportional, kLong };
// "default", "linear", "llama3", "yarn", "proportional", "longrope"
std::string_view RopeTypeName(RopeType type);

// What a config says around the object: used where that does not say it itself.
struct RopeDefaults {
  double theta = 10000.0;
  int64_t max_position_embeddings = 0;  // also L0 where neither has one
  double rotated_fraction = 1.0;
  int64_t original_max_position_embeddings = 0;  // 0: none
};

// With d = head_dim: inv_freq[i] = theta^(-2i/d), i < d/2, then changed by type. Element i pairs
// with i + d/2 ("rotate half") in every supported family.
struct RopeConfig {
  double theta = 10000.0;
  RopeType type = RopeType::kDefault;
  double factor = 1.0;  // >= 1; linear and proportional: inv_freq / factor
  // This part of a head turns. proportional: the first pairs; inv_freq of the others is 0. All
  // other types: the first elements, as if they were a head of their own, so that d is that many.
  double rotated_fraction = 1.0;
  // Context length before scaling, L0. Set for llama3, yarn and longrope, else 0.
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
  // What mscale_all_dim, if yarn has one, makes of the factor: DeepSeek's attention multiplies
  // scores by its square.
  double scale_of_all = 1.0;
  // [rotated elements / 2]: inv_freq[i] is divided by element i, after the type's change. Empty:
  // all 1. GGUF files have llama3 scaling in this form; of longrope it is the list that is taken.
  std::vector<float> frequency_divisors;
  // longrope only: whether its list for longer contexts is taken, and the other one, for whoever
  // writes both.
  bool takes_long = false;
  std::vector<float> other_divisors;
  // yarn of Ministral 3 only: the query at position p is multiplied by 1 + beta ln(1 + floor(p /
  // L0)); 0: none is.
  double query_scale_beta = 0.0;

  // Reads one "rope_scaling" or "rope_parameters" object. `field` is what errors call it; null
  // means no scaling.
  // longrope (Phi-3; LongRoPE, Ding et al., arXiv 2402.13753) has two lists of divisors, one for
  // contexts up to L0 and one for longer ones. Where max_position_embeddings is more than L0 the
  // second is taken for all sequences: with a list by length cached keys would have to be computed
  // anew when one outgrows L0.
  // ERRORS: kCorrupt; kUnsupported for other types. "dynamic" is refused for good, for that reason.
  static Result<RopeConfig> Parse(const Json& object, std::string_view field,
                                  const RopeDefaults& defaults);

  friend bool operator==(const RopeConfig&, const RopeConfig&) = default;
};

// Elements of a head that turn, the first ones, where the type is not kProportional; the others'
// pairs have no frequency.
int RotatedElements(const RopeConfig& rope, int head_dim);

// longrope's where nothing says it: of a context that is `stretch` times as long as `original`.
double LongRopeAttentionFactor(double stretch, int64_t original);

// A frequency as llama3's type changes it. REQUIRES: rope.type is kLlama3.
double Llama3Scaled(double frequency, const RopeConfig& rope);

}  // namespace kvasir

#endif  // KVASIR_FORMATS_ROPE_CONFIG_H_
