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
