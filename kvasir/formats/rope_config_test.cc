// RoPE parameters in the forms that checkpoints write them.
// Deliberately no frequencies: those are the model layer's.
#include "kvasir/formats/rope_config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace kvasir {
namespace {

Result<RopeConfig> ParseText(const std::string& text) {
  return RopeConfig::Parse(*Json::Parse(text), "rope_scaling", {5e5, 32768});
}

void ExpectError(const std::string& text, ErrorCode code, const std::string& part) {
  const auto rope = ParseText(text);
  ASSERT_FALSE(rope.ok()) << text;
  EXPECT_EQ(rope.error().code, code) << rope.error().message;
  EXPECT_NE(rope.error().message.find("rope_scaling"), std::string::npos) << rope.error().message;
  EXPECT_NE(rope.error().message.find(part), std::string::npos) << rope.error().message;
}

TEST(RopeConfig, NoScaling) {
  for (const char* text : {"null", "{}", R"({"rope_type":"default"})"}) {
    const auto rope = ParseText(text);
    ASSERT_TRUE(rope.ok()) << text;
    EXPECT_EQ(rope->theta, 5e5);
    EXPECT_EQ(rope->type, RopeType::kDefault);
    EXPECT_EQ(rope->factor, 1.0);
  }
  EXPECT_EQ(ParseText(R"({"rope_type":"default","rope_theta":1e6})")->theta, 1e6);
}

TEST(RopeConfig, LinearUnderItsOldAndNewName) {
  for (const char* key : {"type", "rope_type"}) {
    const auto rope = ParseText("{\"" + std::string(key) + "\":\"linear\",\"factor\":8}");
    ASSERT_TRUE(rope.ok());
    EXPECT_EQ(rope->type, RopeType::kLinear);
    EXPECT_EQ(rope->factor, 8.0);
  }
}

TEST(RopeConfig, Llama3) {
  const auto rope = ParseText(
      R"({"rope_type":"llama3","factor":32.0,"low_freq_factor":1.0,"high_freq_factor":4.0,)"
      R"("original_max_position_embeddings":8192})");
  ASSERT_TRUE(rope.ok()) << rope.error().message;
  EXPECT_EQ(rope->type, RopeType::kLlama3);
  EXPECT_EQ(rope->factor, 32.0);
  EXPECT_EQ(rope->low_freq_factor, 1.0);
  EXPECT_EQ(rope->high_freq_factor, 4.0);
  EXPECT_EQ(rope->original_max_position_embeddings, 8192);
  ExpectError(R"({"rope_type":"llama3","factor":8})", ErrorCode::kCorrupt,
              "original_max_position_embeddings");
  ExpectError(R"({"rope_type":"llama3","factor":8,"low_freq_factor":4,"high_freq_factor":4})",
              ErrorCode::kCorrupt, "high_freq_factor");
}

TEST(RopeConfig, YarnResolvesItsAttentionFactor) {
  const auto plain = ParseText(R"({"type":"yarn","factor":4.0})");
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  EXPECT_EQ(plain->original_max_position_embeddings, 32768);
  EXPECT_EQ(plain->beta_fast, 32.0);
  EXPECT_EQ(plain->beta_slow, 1.0);
  EXPECT_DOUBLE_EQ(plain->attention_factor, 0.1 * std::log(4.0) + 1.0);
  EXPECT_EQ(ParseText(R"({"type":"yarn","factor":4.0,"attention_factor":1.5})")->attention_factor,
            1.5);
  EXPECT_DOUBLE_EQ(ParseText(R"({"type":"yarn","factor":4.0,"mscale":1.0,"mscale_all_dim":0.5})")
                       ->attention_factor,
                   (0.1 * std::log(4.0) + 1.0) / (0.05 * std::log(4.0) + 1.0));
}

TEST(RopeConfig, ProportionalTurnsAPartOfThePairs) {
  const auto rope =
      ParseText(R"({"rope_type":"proportional","partial_rotary_factor":0.25,"rope_theta":1e6})");
  ASSERT_TRUE(rope.ok()) << rope.error().message;
  EXPECT_EQ(rope->type, RopeType::kProportional);
  EXPECT_EQ(rope->rotated_fraction, 0.25);
  EXPECT_EQ(rope->factor, 1.0);
  EXPECT_EQ(ParseText(R"({"rope_type":"proportional","factor":4})")->factor, 4.0);
  ExpectError(R"({"rope_type":"proportional","partial_rotary_factor":1.5})", ErrorCode::kCorrupt,
              "partial_rotary_factor");
}

// Whether a family can do that, its config says.
TEST(RopeConfig, OtherTypesTurnAPartOfTheElements) {
  const auto rope = ParseText(R"({"rope_type":"default","partial_rotary_factor":0.25})");
  ASSERT_TRUE(rope.ok()) << rope.error().message;
  EXPECT_EQ(rope->type, RopeType::kDefault);
  EXPECT_EQ(rope->rotated_fraction, 0.25);
  EXPECT_EQ(RotatedElements(*rope, 256), 64);
  EXPECT_EQ(RotatedElements(*rope, 26), 6);  // cut, as transformers does
  // What stands beside the object holds where it says nothing.
  const auto beside = [](const std::string& text) {
    return RopeConfig::Parse(*Json::Parse(text), "rope_scaling", {5e5, 32768, 0.5})
        ->rotated_fraction;
  };
  EXPECT_EQ(beside("null"), 0.5);
  EXPECT_EQ(beside(R"({"type":"yarn","factor":4})"), 0.5);
  EXPECT_EQ(beside(R"({"rope_type":"default","partial_rotary_factor":0.25})"), 0.25);
  ExpectError(R"({"rope_type":"default","partial_rotary_factor":1.5})", ErrorCode::kCorrupt,
              "partial_rotary_factor");
}

TEST(RopeConfig, RefusesOtherTypesByName) {
  for (const char* type : {"dynamic", "ntk"}) {
    ExpectError("{\"rope_type\":\"" + std::string(type) + "\",\"factor\":2}",
                ErrorCode::kUnsupported, type);
  }
}

TEST(RopeConfig, LongropeTakesOneOfTwoLists) {
  const std::string lists = R"("short_factor":[1,1.5],"long_factor":[2,1e2])";
  for (const char* type : {"longrope", "su"}) {
    const auto rope = ParseText(R"({"rope_type":")" + std::string(type) + R"(",)" + lists +
                                R"(,"original_max_position_embeddings":2048})");
    ASSERT_TRUE(rope.ok()) << rope.error().message;
    EXPECT_EQ(rope->type, RopeType::kLong);
    EXPECT_EQ(rope->frequency_divisors, (std::vector<float>{2, 100}));
    EXPECT_EQ(rope->other_divisors, (std::vector<float>{1, 1.5}));
    EXPECT_NEAR(rope->attention_factor, std::sqrt(1 + std::log(16.0) / std::log(2048.0)), 1e-12);
  }
  // Nothing says that contexts were stretched.
  EXPECT_EQ(ParseText(R"({"rope_type":"longrope",)" + lists + "}")->frequency_divisors,
            (std::vector<float>{1, 1.5}));
  EXPECT_EQ(ParseText(R"({"rope_type":"longrope","attention_factor":1.25,)" + lists + "}")
                ->attention_factor,
            1.25);
  ExpectError(R"({"rope_type":"longrope","short_factor":[1]})", ErrorCode::kCorrupt, "long_factor");
  ExpectError(R"({"rope_type":"longrope","short_factor":[1],"long_factor":3})", ErrorCode::kCorrupt,
              "long_factor");
  ExpectError(R"({"rope_type":"longrope","short_factor":[0],"long_factor":[1]})",
              ErrorCode::kCorrupt, "short_factor");
  ExpectError(R"({"rope_type":"longrope","short_factor":["1"],"long_factor":[1]})",
              ErrorCode::kCorrupt, "short_factor");
}

TEST(RopeConfig, RefusesNonsense) {
  ExpectError("[]", ErrorCode::kCorrupt, "object");
  ExpectError("3", ErrorCode::kCorrupt, "object");
  ExpectError(R"({"factor":2})", ErrorCode::kCorrupt, "rope_type");
  ExpectError(R"({"rope_type":3})", ErrorCode::kCorrupt, "rope_type");
  ExpectError(R"({"rope_type":"linear"})", ErrorCode::kCorrupt, "factor");
  ExpectError(R"({"rope_type":"linear","factor":0.5})", ErrorCode::kCorrupt, "factor");
  ExpectError(R"({"rope_type":"linear","factor":"2"})", ErrorCode::kCorrupt, "factor");
  ExpectError(R"({"rope_type":"linear","factor":1e300})", ErrorCode::kCorrupt, "factor");
  ExpectError(R"({"rope_theta":0})", ErrorCode::kCorrupt, "rope_theta");
  ExpectError(R"({"rope_theta":-1})", ErrorCode::kCorrupt, "rope_theta");
}

}  // namespace
}  // namespace kvasir
