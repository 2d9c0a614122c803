// Mirostat's purpose, its state and its update.
// Deliberately not its cut: sampler_chain_test compares that with the reference.
#include "kvasir/sampling/mirostat.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kvasir/base/rng.h"
#include "kvasir/sampling/sampler.h"

namespace kvasir {
namespace {

// Zipf's law with a random exponent, another one for each position.
std::vector<float> ZipfLogits(Position position) {
  const double exponent = 0.9 + 0.6 * UniformDouble(8, static_cast<uint64_t>(position));
  std::vector<float> logits(5000);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>(-exponent * std::log(static_cast<double>(i + 1)));
  }
  return logits;
}

double SurpriseBits(const std::vector<float>& logits, Token token) {
  return -Logprobs(logits).Of(token) / std::log(2.0);
}

TEST(Mirostat, MeanSurpriseComesNearTau) {
  for (const int64_t version : {1, 2}) {
    for (const double tau : {3.0, 5.0}) {
      SamplingOptions options = {.temperature = 1.0, .seed = 11};
      options.mirostat = {version, tau, 0.1};
      MirostatState state;
      Sampler sampler;
      double sum = 0.0;
      constexpr Position kTokens = 3000;
      for (Position position = 0; position < kTokens; ++position) {
        const std::vector<float> logits = ZipfLogits(position);
        const Token token = sampler.Sample(logits, options, position, {.mirostat = &state});
        sum += SurpriseBits(logits, token);
      }
      // mu changed by eta * (sum of surprise - tau), and mu itself stays within some bits of tau:
      // the mean differs from tau by less than 30 / (0.1 * 3000) bits.
      EXPECT_NEAR(sum / kTokens, tau, 0.1) << version;
    }
  }
}

TEST(Mirostat, MuFollowsTheSurpriseBeforeTheCut) {
  const std::vector<float> logits = ZipfLogits(1);
  SamplingOptions options = {.temperature = 1.0, .seed = 5};
  options.mirostat = {2, 4.0, 0.25};
  MirostatState state;
  Sampler sampler;
  const Token token = sampler.Sample(logits, options, 1, {.mirostat = &state});
  ASSERT_TRUE(state.mu.has_value());
  // Weights are multiples of 2^-40 of the likeliest; the least drawn here is above 2^-15 of it.
  EXPECT_NEAR(*state.mu, 8.0 - 0.25 * (SurpriseBits(logits, token) - 4.0), 1e-6);
}

TEST(Mirostat, StateIsAValueThatRollsBack) {
  SamplingOptions options = {.temperature = 1.0, .seed = 6};
  options.mirostat = {2, 3.0, 0.2};
  Sampler sampler;
  MirostatState state;
  const auto run = [&](Position begin, Position end) {
    std::vector<Token> tokens;
    for (Position p = begin; p < end; ++p) {
      tokens.push_back(sampler.Sample(ZipfLogits(p), options, p, {.mirostat = &state}));
    }
    return tokens;
  };
  run(0, 10);
  const MirostatState saved = state;
  const std::vector<Token> first = run(10, 30);
  state = saved;
  EXPECT_EQ(run(10, 30), first);
}

TEST(Mirostat, DistributionLeavesTheStateAlone) {
  SamplingOptions options = {.temperature = 1.0, .seed = 6};
  options.mirostat = {1, 3.0, 0.2};
  MirostatState state;
  Sampler sampler;
  sampler.Distribution(ZipfLogits(0), options, 0, {.mirostat = &state});
  EXPECT_FALSE(state.mu.has_value());
}

}  // namespace
}  // namespace kvasir
