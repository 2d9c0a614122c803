// Fields of requests as llama-server's clients write them.
// Deliberately no ranges: sampling_options_test has them.
#include "kvasir/sampling/sampling_fields.h"

#include <gtest/gtest.h>

namespace kvasir {
namespace {

Result<SamplingOptions> Read(std::string_view text) {
  KVASIR_TRY(const Json body, Json::Parse(text));
  SamplingOptions options;
  KVASIR_TRY_OK(ReadSamplingFields(body, &options));
  return options;
}

TEST(SamplingFields, AreReadUnderTheirNames) {
  const auto options = Read(R"({
      "repeat_last_n": 64, "typical_p": 0.9, "top_n_sigma": 1.5, "dynatemp_range": 0.5,
      "dynatemp_exponent": 1.25, "xtc_probability": 0.25, "xtc_threshold": 0.125,
      "dry_multiplier": 0.75, "dry_base": 2, "dry_allowed_length": 3, "dry_penalty_last_n": 128,
      "dry_sequence_breakers": ["\n", "###"], "mirostat": 2, "mirostat_tau": 4,
      "mirostat_eta": 0.5, "samplers": ["dry", "top_k", "typical_p", "temperature"]})");
  ASSERT_TRUE(options.ok()) << options.error().message;
  EXPECT_EQ(options->repeat_last_n, 64);
  EXPECT_EQ(options->typical_p, 0.9);
  EXPECT_EQ(options->top_n_sigma, 1.5);
  EXPECT_EQ(options->dynamic_temperature.range, 0.5);
  EXPECT_EQ(options->dynamic_temperature.exponent, 1.25);
  EXPECT_EQ(options->xtc.probability, 0.25);
  EXPECT_EQ(options->xtc.threshold, 0.125);
  EXPECT_EQ(options->dry.multiplier, 0.75);
  EXPECT_EQ(options->dry.base, 2.0);
  EXPECT_EQ(options->dry.allowed_length, 3);
  EXPECT_EQ(options->dry.last_n, 128);
  EXPECT_EQ(options->dry.breakers, (std::vector<std::string>{"\n", "###"}));
  EXPECT_EQ(options->mirostat.version, 2);
  EXPECT_EQ(options->mirostat.tau, 4.0);
  EXPECT_EQ(options->mirostat.eta, 0.5);
  EXPECT_EQ(options->stages,
            (std::vector<SamplerStage>{SamplerStage::kDry, SamplerStage::kTopK,
                                       SamplerStage::kTypicalP, SamplerStage::kTemperature}));
  EXPECT_TRUE(options->Validate(10).ok());
}

TEST(SamplingFields, SamplersMayBeLetters) {
  const auto options = Read(R"({"samplers": "edskypmxt"})");
  ASSERT_TRUE(options.ok()) << options.error().message;
  EXPECT_EQ(options->stages,
            (std::vector<SamplerStage>{
                SamplerStage::kPenalties, SamplerStage::kDry, SamplerStage::kTopNSigma,
                SamplerStage::kTopK, SamplerStage::kTypicalP, SamplerStage::kTopP,
                SamplerStage::kMinP, SamplerStage::kXtc, SamplerStage::kTemperature}));
  EXPECT_FALSE(Read(R"({"samplers": "kz"})").ok());
  EXPECT_TRUE(Read(R"({"samplers": ""})")->stages.empty());
}

TEST(SamplingFields, MissingAndNullChangeNothing) {
  const auto options = Read(R"({"samplers": null, "dry_base": null, "top_n_sigma": -1})");
  ASSERT_TRUE(options.ok());
  EXPECT_EQ(options->stages.size(), DefaultStages().size());
  EXPECT_EQ(options->dry.base, 1.75);
  EXPECT_EQ(options->top_n_sigma, 0.0);
}

TEST(SamplingFields, WrongOnesAreNamed) {
  const std::pair<std::string, std::string> wrong[] = {
      {"typical_p", R"("x")"},
      {"mirostat", "1.5"},
      {"dry_penalty_last_n", "[]"},
      {"dry_sequence_breakers", R"("\n")"},
      {"dry_sequence_breakers", R"([1])"},
      {"dry_sequence_breakers",
       R"(["a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a"])"},
      {"samplers", R"(["top_k", "nonsense"])"},
      {"samplers", R"({})"},
  };
  for (const auto& [field, value] : wrong) {
    const auto options = Read("{\"" + field + "\": " + value + "}");
    ASSERT_FALSE(options.ok()) << field << value;
    EXPECT_NE(options.error().message.find("field '" + field + "'"), std::string::npos);
  }
}

TEST(SamplingFields, ALongListOfSamplersIsRefused) {
  std::string names = "\"top_k\"";
  for (int i = 0; i < 1000; ++i) names += ", \"top_k\"";
  const auto options = Read("{\"samplers\": [" + names + "]}");
  ASSERT_TRUE(options.ok());
  EXPECT_LE(options->stages.size(), 10u);
  EXPECT_FALSE(options->Validate(10).ok());
}

}  // namespace
}  // namespace kvasir
