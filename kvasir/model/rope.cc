#include "kvasir/model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>

#include "kvasir/base/trigonometry.h"

namespace kvasir {
namespace {

// Dimension whose wavelength makes `rotations` turns over the original context (YaRN, eq. 17).
double YarnDimension(double rotations, const RopeConfig& config, int head_dim) {
  const double original = static_cast<double>(config.original_max_position_embeddings);
  return head_dim * std::log(original / (2 * std::numbers::pi * rotations)) /
         (2 * std::log(config.theta));
}

double YarnScaled(double frequency, int i, const RopeConfig& config, int head_dim) {
  double low = YarnDimension(config.beta_fast, config, head_dim);
  double high = YarnDimension(config.beta_slow, config, head_dim);
  if (config.truncates) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(head_dim - 1));
  if (low == high) high += 0.001;  // the reference's guard against a division by zero
  const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
  return frequency * (1 - ramp) + frequency / config.factor * ramp;
}

}  // namespace

RopeSpec MakeRope(const RopeConfig& config, int head_dim) {
  RopeSpec rope;
  rope.attention_factor = static_cast<float>(config.attention_factor);
  const bool is_proportional = config.type == RopeType::kProportional;
  rope.rotated = is_proportional ? head_dim : RotatedElements(config, head_dim);
  const int turning = static_cast<int>(config.rotated_fraction * head_dim / 2);
  for (int i = 0; i < rope.rotated / 2; ++i) {
    double frequency = std::pow(config.theta, -2.0 * i / rope.rotated);
    switch (config.type) {
      case RopeType::kDefault:
      case RopeType::kLong:  // its divisors do it
        break;
      case RopeType::kLinear:
        frequency /= config.factor;
        break;
      case RopeType::kLlama3:
        frequency = Llama3Scaled(frequency, config);
        break;
      case RopeType::kYarn:
        frequency = YarnScaled(frequency, i, config, rope.rotated);
        break;
      case RopeType::kProportional:
        frequency = i < turning ? frequency / config.factor : 0.0;
        break;
    }
    if (!config.frequency_divisors.empty()) {
      frequency /= config.frequency_divisors[static_cast<size_t>(i)];
    }
    rope.inverse_frequencies.push_back(static_cast<float>(frequency));
  }
  rope.inverse_frequencies.resize(static_cast<size_t>(head_dim / 2), 0.0f);
  rope.query_scale_beta = config.query_scale_beta;
  if (config.query_scale_beta > 0)
    rope.query_scale_period = config.original_max_position_embeddings;
  return rope;
}

RopeSpec Widened(RopeSpec rope, int head_dim) {
  rope.inverse_frequencies.resize(static_cast<size_t>(head_dim / 2), 0.0f);
  return rope;
}

RopeSpec StillRope(int head_dim) {
  RopeSpec rope;
  rope.rotated = head_dim;
  rope.inverse_frequencies.assign(static_cast<size_t>(head_dim / 2), 0.0f);
  return rope;
}

float QueryScale(const RopeSpec& rope, Position position) {
  const auto periods = static_cast<double>(position / rope.query_scale_period);
  return static_cast<float>(1 + rope.query_scale_beta * std::log1p(periods));
}

std::vector<int64_t> HeadOrder(const RopeSpec& rope) {
  std::vector<int64_t> order(2 * rope.inverse_frequencies.size());
  std::iota(order.begin(), order.end(), int64_t{0});
  if (rope.is_interleaved) {
    const int64_t half = rope.rotated / 2;
    for (int64_t i = 0; i < rope.rotated; ++i) {
      order[static_cast<size_t>(i)] = i < half ? 2 * i : 2 * (i - half) + 1;
    }
  }
  // What turns with the first elements goes behind the first half, before all else that is there.
  const auto begin = order.begin() + rope.rotated / 2;
  std::rotate(begin, order.begin() + rope.rotated,
              begin + static_cast<int64_t>(rope.inverse_frequencies.size()));
  return order;
}

void FillAngles(const RopeSpec& rope, std::span<const Position> positions, FloatRows cos,
                FloatRows sin) {
  const auto turning = static_cast<size_t>(rope.rotated / 2);
  for (size_t row = 0; row < positions.size(); ++row) {
    const float position = static_cast<float>(positions[row]);
    float* const cos_row = cos.row(static_cast<int64_t>(row));
    float* const sin_row = sin.row(static_cast<int64_t>(row));
    for (size_t i = 0; i < rope.inverse_frequencies.size(); ++i) {
      const float angle = position * rope.inverse_frequencies[i];
      const SinCosResult result = SinCos(angle);
      const float factor = i < turning ? rope.attention_factor : 1.0f;
      cos_row[i] = static_cast<float>(result.cos) * factor;
      sin_row[i] = static_cast<float>(result.sin) * factor;
    }
  }
}

}  // namespace kvasir
