// Rotary position embedding: frequencies of a family, angles of a step.
// Deliberately only the half-split pairing (i, i + head_dim/2) that Hugging Face checkpoints use.
// Sources: Su et al., arXiv 2104.09864; llama3 scaling as published with Llama 3.1; YaRN, Peng et
// al., arXiv 2309.00071.
#ifndef KVASIR_MODEL_ROPE_H_
#define KVASIR_MODEL_ROPE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kvasir/base/token.h"
#include "kvasir/formats/model_config.h"
#include "kvasir/tensor/float_rows.h"

namespace kvasir {

struct RopeSpec {
  std::vector<float> inverse_frequencies;  // [head_dim / 2], radians per position
  // Elements of a stored head that turn, the first ones, half with half; head_dim: all.
  int rotated = 0;
  // These are stored as pairs of neighbours, (2i, 2i + 1).
  bool is_interleaved = false;
  float attention_factor = 1;  // multiplies cos and sin of what turns (YaRN)
  // The query at position p is multiplied by 1 + beta ln(1 + floor(p / period)); 0: none is
  // (Ministral 3, after Llama 4).
  double query_scale_beta = 0;
  int64_t query_scale_period = 1;
};

// Frequencies for `head_dim` (even) under a parsed rope description.
RopeSpec MakeRope(const RopeConfig& config, int head_dim);

// The same of heads of more elements, of which the others, behind them, do not turn.
RopeSpec Widened(RopeSpec rope, int head_dim);

// One of heads that do not turn at all.
RopeSpec StillRope(int head_dim);

// What the query at `position` is multiplied by.
float QueryScale(const RopeSpec& rope, Position position);

// Which elements of a stored head the elements of a head are whose pairs are (i, i + head_dim/2).
// All kinds of scores are the same whatever the order of a head's elements.
std::vector<int64_t> HeadOrder(const RopeSpec& rope);

// cos and sin of every position: [positions.size(), head_dim / 2]. The angle is the float product
// of position and frequency, as the reference implementations compute it.
void FillAngles(const RopeSpec& rope, std::span<const Position> positions, FloatRows cos,
                FloatRows sin);

}  // namespace kvasir

#endif  // KVASIR_MODEL_ROPE_H_
