// generation_config.json: what is read, what is refused.
// Deliberately small: the file only recommends.
#include "kvasir/formats/generation_config.h"

#include <gtest/gtest.h>

#include <string>

namespace kvasir {
namespace {

Result<GenerationConfig> ParseText(const std::string& text) {
  return GenerationConfig::Parse(*Json::Parse(text));
}

TEST(GenerationConfig, ReadsEveryField) {
  const auto config = ParseText(
      R"({"eos_token_id":[1,106],"bos_token_id":2,"pad_token_id":0,"do_sample":true,)"
      R"("temperature":0.6,"top_k":64,"top_p":0.95,"min_p":0.01,"repetition_penalty":1.1,)"
      R"("transformers_version":"4.52.0"})");
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->eos_token_ids, (std::vector<Token>{1, 106}));
  EXPECT_EQ(config->bos_token_id, 2);
  EXPECT_EQ(config->pad_token_id, 0);
  EXPECT_EQ(config->do_sample, true);
  EXPECT_EQ(config->temperature, 0.6);
  EXPECT_EQ(config->top_k, 64);
  EXPECT_EQ(config->top_p, 0.95);
  EXPECT_EQ(config->min_p, 0.01);
  EXPECT_EQ(config->repetition_penalty, 1.1);
}

TEST(GenerationConfig, AbsentAndNullAreAbsent) {
  for (const char* text : {"{}", R"({"eos_token_id":null,"top_k":null,"temperature":null})"}) {
    const auto config = ParseText(text);
    ASSERT_TRUE(config.ok());
    EXPECT_TRUE(config->eos_token_ids.empty());
    EXPECT_FALSE(config->top_k.has_value());
    EXPECT_FALSE(config->temperature.has_value());
  }
  EXPECT_EQ(ParseText(R"({"eos_token_id":7})")->eos_token_ids, (std::vector<Token>{7}));
  EXPECT_FALSE(ParseText(R"({"pad_token_id":-1})")->pad_token_id.has_value());
}

TEST(GenerationConfig, AllTokensHaveTwoNames) {
  EXPECT_EQ(ParseText(R"({"top_k":-1})")->top_k, 0);
  EXPECT_EQ(ParseText(R"({"top_k":0})")->top_k, 0);
}

TEST(GenerationConfig, ErrorsNameTheField) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"({"eos_token_id":-1})", "eos_token_id"},
      {R"({"pad_token_id":-2})", "pad_token_id"},
      {R"({"eos_token_id":[-1]})", "eos_token_id"},
      {R"({"eos_token_id":[1,"x"]})", "eos_token_id"},
      {R"({"eos_token_id":2147483648})", "eos_token_id"},
      {R"({"bos_token_id":1.5})", "bos_token_id"},
      {R"({"temperature":"hot"})", "temperature"},
      {R"({"temperature":-0.5})", "temperature"},
      {R"({"top_k":0.5})", "top_k"},
      {R"({"top_k":-2})", "top_k"},
      {R"({"top_p":1.5})", "top_p"},
      {R"({"min_p":-0.1})", "min_p"},
      {R"({"repetition_penalty":0})", "repetition_penalty"},
      {R"({"do_sample":1})", "do_sample"},
  };
  for (const auto& [text, field] : kCases) {
    const auto config = ParseText(text);
    ASSERT_FALSE(config.ok()) << text;
    EXPECT_NE(config.error().message.find(field), std::string::npos) << config.error().message;
  }
  EXPECT_FALSE(ParseText("[]").ok());
}

}  // namespace
}  // namespace kvasir
