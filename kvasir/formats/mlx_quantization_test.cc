#include "kvasir/formats/mlx_quantization.h"

#include <gtest/gtest.h>

namespace kvasir {
namespace {

Result<MlxQuantization> Parse(std::string_view text) {
  return MlxQuantization::Parse(*Json::Parse(text));
}

TEST(MlxQuantization, OverridesWinOverTheCommonFormat) {
  const auto parsed = Parse(R"({"group_size": 64, "bits": 4, "mode": "affine",
      "model.layers.0.mlp.down_proj": {"group_size": 32, "bits": 6},
      "model.layers.3.self_attn.o_proj": false, "model.layers.4.mlp": true})");
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->common(), (MlxFormat{MlxMode::kAffine, 4, 64}));
  EXPECT_EQ(parsed->For("model.layers.0.mlp.down_proj"), (MlxFormat{MlxMode::kAffine, 6, 32}));
  EXPECT_EQ(parsed->For("model.layers.3.self_attn.o_proj"), std::nullopt);
  EXPECT_EQ(parsed->For("model.layers.4.mlp"), parsed->common());
}

TEST(MlxQuantization, WrapperPrefixIsIgnoredOnEitherSide) {
  const auto parsed = Parse(R"({"language_model.model.a": {"bits": 8}, "model.b": {"bits": 3}})");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->For("model.a")->bits, 8);
  EXPECT_EQ(parsed->For("language_model.model.b")->bits, 3);
}

TEST(MlxQuantization, EveryModeHasItsDefaults) {
  EXPECT_EQ(Parse("{}")->common(), (MlxFormat{MlxMode::kAffine, 4, 64}));
  EXPECT_EQ(Parse(R"({"bits":1,"group_size":128})")->common(),
            (MlxFormat{MlxMode::kAffine, 1, 128}));
  EXPECT_EQ(Parse(R"({"mode":"mxfp4"})")->common(), (MlxFormat{MlxMode::kMxfp4, 4, 32}));
  EXPECT_EQ(Parse(R"({"mode":"mxfp8"})")->common(), (MlxFormat{MlxMode::kMxfp8, 8, 32}));
  EXPECT_EQ(Parse(R"({"mode":"nvfp4"})")->common(), (MlxFormat{MlxMode::kNvfp4, 4, 16}));
}

TEST(MlxQuantization, WhatMlxDoesNotHaveIsRefused) {
  for (const char* text : {R"({"bits":7})", R"({"bits":0})", R"({"bits":4294967300})",
                           R"({"group_size":16})", R"({"group_size":0})", R"({"group_size":-64})",
                           R"({"mode":"fp3"})", R"({"mode":"mxfp4","bits":8})",
                           R"({"mode":"nvfp4","group_size":32})", R"({"model.a":{"bits":9}})"}) {
    const auto parsed = Parse(text);
    ASSERT_FALSE(parsed.ok()) << text;
    EXPECT_EQ(parsed.error().code, ErrorCode::kUnsupported) << text;
  }
  EXPECT_EQ(Parse(R"({"bits":"4"})").error().code, ErrorCode::kCorrupt);
  EXPECT_EQ(Parse("[]").error().code, ErrorCode::kCorrupt);
  EXPECT_NE(Parse(R"({"model.a":{"bits":9}})").error().message.find("model.a"), std::string::npos);
}

}  // namespace
}  // namespace kvasir
