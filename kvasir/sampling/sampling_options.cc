#include "kvasir/sampling/sampling_options.h"

#include <cmath>
#include <limits>
#include <string>
#include <string_view>

namespace kvasir {
namespace {

constexpr double kMaxPenalty = 100.0;

Status OutOfRange(std::string_view field, std::string_view range, double value) {
  return {ErrorCode::kInvalidArgument, "field '" + std::string(field) + "' must be " +
                                           std::string(range) + ", not " + std::to_string(value)};
}

}  // namespace

Status SamplingOptions::Validate(int64_t vocab_size) const {
  // Conditions are negated so that NaN fails each of them.
  if (!(temperature >= 0.0 && std::isfinite(temperature))) {
    return OutOfRange("temperature", "at least 0", temperature);
  }
  if (top_k < 0) return OutOfRange("top_k", "at least 0", static_cast<double>(top_k));
  if (!(top_p > 0.0 && top_p <= 1.0)) {
    return OutOfRange("top_p", "above 0 and at most 1", top_p);
  }
  if (!(min_p >= 0.0 && min_p <= 1.0)) return OutOfRange("min_p", "between 0 and 1", min_p);
  if (!(repetition_penalty > 0.0 && repetition_penalty <= kMaxPenalty)) {
    return OutOfRange("repetition_penalty", "above 0 and at most 100", repetition_penalty);
  }
  if (!(std::fabs(frequency_penalty) <= kMaxPenalty)) {
    return OutOfRange("frequency_penalty", "between -100 and 100", frequency_penalty);
  }
  if (!(std::fabs(presence_penalty) <= kMaxPenalty)) {
    return OutOfRange("presence_penalty", "between -100 and 100", presence_penalty);
  }
  for (const TokenBias& entry : logit_bias) {
    if (entry.token < 0 || entry.token >= vocab_size) {
      return {ErrorCode::kInvalidArgument,
              "field 'logit_bias' names token " + std::to_string(entry.token) +
                  ", the vocabulary has " + std::to_string(vocab_size)};
    }
    if (!(entry.bias < std::numeric_limits<float>::infinity())) {
      return OutOfRange("logit_bias", "finite or -infinity", entry.bias);
    }
  }
  return {};
}

}  // namespace kvasir
