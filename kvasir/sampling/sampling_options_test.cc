// Which options are refused, and that the message names the field.
// Deliberately nothing about sampling itself.
#include "kvasir/sampling/sampling_options.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace kvasir {
namespace {

void ExpectRefused(const SamplingOptions& options, const std::string& field) {
  const Status status = options.Validate(100);
  ASSERT_FALSE(status.ok()) << field;
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(status.error().message.find(field), std::string::npos) << status.error().message;
}

TEST(SamplingOptions, DefaultsAreGreedyAndValid) {
  const SamplingOptions options;
  EXPECT_TRUE(options.Validate(1).ok());
  EXPECT_TRUE(options.is_greedy());
  EXPECT_FALSE(options.has_penalties());
}

TEST(SamplingOptions, RefusesWhatIsOutOfRange) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double bad : {-0.1, kInfinity, std::nan("")}) {
    ExpectRefused({.temperature = bad}, "temperature");
    ExpectRefused({.repetition_penalty = bad}, "repetition_penalty");
  }
  ExpectRefused({.top_k = -1}, "top_k");
  for (const double bad : {0.0, -0.5, 1.01, std::nan("")}) ExpectRefused({.top_p = bad}, "top_p");
  for (const double bad : {-0.1, 1.1, std::nan("")}) ExpectRefused({.min_p = bad}, "min_p");
  for (const double bad : {-101.0, 101.0, std::nan("")}) {
    ExpectRefused({.frequency_penalty = bad}, "frequency_penalty");
    ExpectRefused({.presence_penalty = bad}, "presence_penalty");
  }
}

// `set` writes the value into otherwise good options.
template <typename Set>
void ExpectRange(const std::string& field, std::initializer_list<double> good,
                 std::initializer_list<double> bad, const Set& set) {
  SamplingOptions options;
  for (const double value : good) {
    set(options, value);
    EXPECT_TRUE(options.Validate(100).ok()) << field << " " << value;
  }
  for (const double value : bad) {
    set(options, value);
    ExpectRefused(options, "'" + field + "'");
  }
}

TEST(SamplingOptions, EveryStageHasItsRange) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double nan = std::nan("");
  using Options = SamplingOptions;
  ExpectRange("typical_p", {1e-9, 1}, {0, -1, 1.1, nan},
              [](Options& o, double v) { o.typical_p = v; });
  ExpectRange("top_n_sigma", {0, 50}, {-1, kInfinity, nan},
              [](Options& o, double v) { o.top_n_sigma = v; });
  ExpectRange("dynatemp_range", {0, 100}, {-1, 101, nan},
              [](Options& o, double v) { o.dynamic_temperature.range = v; });
  ExpectRange("dynatemp_exponent", {0.1, 100}, {0, -1, 101, nan},
              [](Options& o, double v) { o.dynamic_temperature.exponent = v; });
  ExpectRange("xtc_probability", {0, 1}, {-0.1, 1.1, nan},
              [](Options& o, double v) { o.xtc.probability = v; });
  ExpectRange("xtc_threshold", {0, 1}, {-0.1, 1.1, nan},
              [](Options& o, double v) { o.xtc.threshold = v; });
  ExpectRange("dry_multiplier", {0, 100}, {-1, 101, nan},
              [](Options& o, double v) { o.dry.multiplier = v; });
  ExpectRange("dry_base", {1, 100}, {0.9, 101, nan}, [](Options& o, double v) { o.dry.base = v; });
  ExpectRange("dry_allowed_length", {1, 1000}, {0, -1},
              [](Options& o, double v) { o.dry.allowed_length = static_cast<int64_t>(v); });
  ExpectRange("dry_penalty_last_n", {-1, 0, 1e6}, {-2},
              [](Options& o, double v) { o.dry.last_n = static_cast<int64_t>(v); });
  ExpectRange("repeat_last_n", {-1, 0, 1e6}, {-2},
              [](Options& o, double v) { o.repeat_last_n = static_cast<int64_t>(v); });
  ExpectRange("mirostat", {0, 1, 2}, {-1, 3},
              [](Options& o, double v) { o.mirostat.version = static_cast<int64_t>(v); });
  ExpectRange("mirostat_tau", {0, 100}, {-1, 101, nan},
              [](Options& o, double v) { o.mirostat.tau = v; });
  ExpectRange("mirostat_eta", {0, 1}, {-0.1, 1.1, nan},
              [](Options& o, double v) { o.mirostat.eta = v; });
}

TEST(SamplingOptions, StagesHaveNamesAndComeOnce) {
  for (const SamplerStage stage : DefaultStages()) {
    const auto found = SamplerStageFromName(SamplerStageName(stage));
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(*found, stage);
  }
  EXPECT_EQ(*SamplerStageFromName("temp"), SamplerStage::kTemperature);
  EXPECT_FALSE(SamplerStageFromName("top-k").ok());
  SamplingOptions options;
  options.stages = {};
  EXPECT_TRUE(options.Validate(100).ok());
  options.stages = {SamplerStage::kTopK, SamplerStage::kXtc, SamplerStage::kTopK};
  ExpectRefused(options, "samplers");
}

TEST(SamplingOptions, BiasMustNameAKnownTokenAndBeNoPlusInfinity) {
  SamplingOptions options;
  options.logit_bias = {{99, -std::numeric_limits<float>::infinity()}};
  EXPECT_TRUE(options.Validate(100).ok());
  options.logit_bias = {{100, 1.0f}};
  ExpectRefused(options, "logit_bias");
  options.logit_bias = {{-1, 1.0f}};
  ExpectRefused(options, "logit_bias");
  options.logit_bias = {{0, std::numeric_limits<float>::infinity()}};
  ExpectRefused(options, "logit_bias");
  options.logit_bias = {{0, std::nanf("")}};
  ExpectRefused(options, "logit_bias");
}

}  // namespace
}  // namespace kvasir
