#include "kvasir/sampling/sampling_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>

namespace kvasir {
namespace {

constexpr double kMaxPenalty = 100.0;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
// The least double above 0: makes a closed interval of an open one.
constexpr double kAboveZero = std::numeric_limits<double>::denorm_min();

// A field, its value and the closed interval it must lie in.
struct Range {
  std::string_view field;
  double value;
  double least;
  double most;
  std::string_view words;
};

// With as many digits as tell it from its neighbours.
std::string ShortestText(double value) {
  std::array<char, 32> text;
  const auto [end, error] = std::to_chars(text.begin(), text.end(), value);
  return {text.begin(), end};
}

Status Check(const Range& range) {
  // Negated so that NaN fails.
  if (range.value >= range.least && range.value <= range.most) return {};
  return {ErrorCode::kInvalidArgument, "field '" + std::string(range.field) + "' must be " +
                                           std::string(range.words) + ", not " +
                                           ShortestText(range.value)};
}

// -1 is "all".
Status CheckWindow(std::string_view field, int64_t tokens) {
  return Check({field, static_cast<double>(tokens), -1, kInfinity, "at least -1"});
}

Status CheckBias(const LogitBias& biases, int64_t vocab_size) {
  for (const TokenBias& entry : biases) {
    if (entry.token < 0 || entry.token >= vocab_size) {
      return {ErrorCode::kInvalidArgument,
              "field 'logit_bias' names token " + std::to_string(entry.token) +
                  ", the vocabulary has " + std::to_string(vocab_size)};
    }
    KVASIR_TRY_OK(Check({"logit_bias", entry.bias, -kInfinity, std::numeric_limits<float>::max(),
                         "finite or -infinity"}));
  }
  return {};
}

Status CheckStages(const std::vector<SamplerStage>& stages) {
  for (auto stage = stages.begin(); stage != stages.end(); ++stage) {
    if (std::find(stages.begin(), stage, *stage) == stage) continue;
    return {ErrorCode::kInvalidArgument,
            "field 'samplers' must have each name at most once, not '" +
                std::string(SamplerStageName(*stage)) + "' twice"};
  }
  return {};
}

}  // namespace

Status SamplingOptions::Validate(int64_t vocab_size) const {
  const Range ranges[] = {
      {"temperature", temperature, 0, std::numeric_limits<double>::max(), "finite and at least 0"},
      {"top_k", static_cast<double>(top_k), 0, kInfinity, "at least 0"},
      {"top_p", top_p, kAboveZero, 1, "above 0 and at most 1"},
      {"min_p", min_p, 0, 1, "between 0 and 1"},
      {"repetition_penalty", repetition_penalty, kAboveZero, kMaxPenalty,
       "above 0 and at most 100"},
      {"frequency_penalty", frequency_penalty, -kMaxPenalty, kMaxPenalty, "between -100 and 100"},
      {"presence_penalty", presence_penalty, -kMaxPenalty, kMaxPenalty, "between -100 and 100"},
      {"typical_p", typical_p, kAboveZero, 1, "above 0 and at most 1"},
      {"top_n_sigma", top_n_sigma, 0, std::numeric_limits<double>::max(), "finite and at least 0"},
      {"dynatemp_range", dynamic_temperature.range, 0, 100, "between 0 and 100"},
      {"dynatemp_exponent", dynamic_temperature.exponent, kAboveZero, 100,
       "above 0 and at most 100"},
      {"xtc_probability", xtc.probability, 0, 1, "between 0 and 1"},
      {"xtc_threshold", xtc.threshold, 0, 1, "between 0 and 1"},
      {"dry_multiplier", dry.multiplier, 0, 100, "between 0 and 100"},
      {"dry_base", dry.base, 1, 100, "between 1 and 100"},
      {"dry_allowed_length", static_cast<double>(dry.allowed_length), 1, kInfinity, "at least 1"},
      {"mirostat", static_cast<double>(mirostat.version), 0, 2, "0, 1 or 2"},
      {"mirostat_tau", mirostat.tau, 0, 100, "between 0 and 100"},
      {"mirostat_eta", mirostat.eta, 0, 1, "between 0 and 1"},
  };
  for (const Range& range : ranges) KVASIR_TRY_OK(Check(range));
  KVASIR_TRY_OK(CheckWindow("repeat_last_n", repeat_last_n));
  KVASIR_TRY_OK(CheckWindow("dry_penalty_last_n", dry.last_n));
  KVASIR_TRY_OK(CheckBias(logit_bias, vocab_size));
  return CheckStages(stages);
}

}  // namespace kvasir
