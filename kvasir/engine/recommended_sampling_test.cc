#include "kvasir/engine/recommended_sampling.h"

#include <gtest/gtest.h>

#include "kvasir/base/json.h"

namespace kvasir {
namespace {

SamplingOptions Recommended(const char* json, double temperature) {
  return RecommendedSampling(*GenerationConfig::Parse(*Json::Parse(json)), temperature);
}

TEST(RecommendedSampling, WhatIsNotRecommendedIsTheCallers) {
  EXPECT_EQ(Recommended("{}", 1.0).temperature, 1.0);
  EXPECT_EQ(Recommended(R"({"temperature":0.6})", 1.0).temperature, 0.6);
  EXPECT_EQ(Recommended(R"({"temperature":0.6,"do_sample":false})", 1.0).temperature, 0.0);
  const SamplingOptions all =
      Recommended(R"({"top_k":20,"top_p":0.8,"min_p":0.1,"repetition_penalty":1.05})", 0.0);
  EXPECT_EQ(all.temperature, 0.0);
  EXPECT_EQ(all.top_k, 20);
  EXPECT_EQ(all.top_p, 0.8);
  EXPECT_EQ(all.min_p, 0.1);
  EXPECT_EQ(all.repetition_penalty, 1.05);
}

// A model's file is no fault of who sends a request.
TEST(RecommendedSampling, WhatAFileMaySayIsValid) {
  for (const char* json :
       {"{}", R"({"temperature":0,"top_k":-1,"top_p":0,"min_p":0,"repetition_penalty":1e-9})",
        R"({"temperature":1e300,"top_k":9007199254740993,"top_p":1,"min_p":1,)"
        R"("repetition_penalty":100})"}) {
    const Status valid = Recommended(json, 1.0).Validate(256);
    EXPECT_TRUE(valid.ok()) << json << ": " << valid.error().message;
  }
}

}  // namespace
}  // namespace kvasir
