#include "kvasir/formats/checkpoint_quantization.h"

#include <gtest/gtest.h>

namespace kvasir {
namespace {

Result<HfQuantization> Parse(std::string_view text) {
  return HfQuantization::Parse(*Json::Parse(text));
}

void ExpectError(std::string_view text, ErrorCode code, std::string_view words) {
  const auto parsed = Parse(text);
  ASSERT_FALSE(parsed.ok()) << text;
  EXPECT_EQ(parsed.error().code, code) << text;
  EXPECT_NE(parsed.error().message.find(words), std::string::npos) << parsed.error().message;
}

TEST(HfQuantization, Methods) {
  using enum HfQuantization::Kind;
  const auto awq = Parse(R"({"quant_method":"awq","bits":4,"version":"GEMM"})");
  ASSERT_TRUE(awq.ok()) << awq.error().message;
  EXPECT_EQ(awq->kind, kAwq);
  const auto gptq = Parse(R"({"quant_method":"gptq","bits":3})");
  EXPECT_EQ(gptq->kind, kGptq);
  EXPECT_EQ(gptq->bits, 3);
  EXPECT_EQ(gptq->zero_offset, 1);
  EXPECT_EQ(Parse(R"({"quant_method":"gptq","checkpoint_format":"gptq_v2"})")->zero_offset, 0);
  EXPECT_EQ(Parse(R"({"quant_method":"gptq","format":"gptq_v2"})")->zero_offset, 0);
  const auto round = Parse(R"({"quant_method":"auto-round","bits":2,"group_size":64})");
  ASSERT_TRUE(round.ok()) << round.error().message;
  EXPECT_EQ(round->kind, kGptq);
  EXPECT_EQ(round->zero_offset, 1);
  EXPECT_EQ(round->bits, 2);
  EXPECT_EQ(round->group_size, 64);
  const auto packed_as = [](const std::string& format) {
    return Parse(R"({"quant_method":"auto-round","packing_format":"auto_round)" + format + "\"}");
  };
  EXPECT_EQ(packed_as("")->zero_offset, 0);
  EXPECT_EQ(packed_as(":gptqmodel")->kind, kGptq);
  EXPECT_EQ(packed_as(":auto_awq")->kind, kAwq);
  EXPECT_EQ(packed_as(":llm_compressor")->kind, kScaled);
  // Before there was a packing_format; its own layout stores zeros as they are.
  const auto zero_offset = [](const char* field, const std::string& name) {
    return Parse(R"({"quant_method":"intel/auto-round",")" + std::string(field) + R"(":")" + name +
                 "\"}")
        ->zero_offset;
  };
  for (const char* field : {"backend", "packing_format"}) {
    for (const char* own : {"auto_round:exllamav2", "autoround:tritonv2"}) {
      EXPECT_EQ(zero_offset(field, own), 0) << own;
    }
    for (const char* first : {"gptq:exllamav2", "auto_round:gptq:exllamav2", "auto_gptq:marlin"}) {
      EXPECT_EQ(zero_offset(field, first), 1) << first;
    }
  }
  EXPECT_EQ(Parse(R"({"quant_method":"auto-round","backend":"auto_round:exllamav2",
                     "packing_format":"auto_round:auto_gptq"})")
                ->zero_offset,
            1);
  for (const char* type : {"nv_fp", "mx_fp", "int"}) {
    EXPECT_EQ(Parse(R"({"quant_method":"auto-round","packing_format":"auto_round:llm_compressor",
                       "data_type":")" +
                    std::string(type) + "\"}")
                  ->kind,
              kScaled);
  }
  const auto groups = Parse(R"({"quant_method":"compressed-tensors","config_groups":{
      "a":{"weights":{"num_bits":3,"type":"int"}},"b":{"weights":{"num_bits":8,"type":"float"}},
      "c":{"weights":{"num_bits":7}},"d":{"weights":null},"e":1}})");
  EXPECT_EQ(groups->packed_bits, (std::vector<int>{3, 7}));
  const auto fp8 = Parse(R"({"quant_method":"fp8","weight_block_size":[64,256]})");
  EXPECT_EQ(fp8->kind, kScaled);
  EXPECT_EQ(fp8->block_outputs, 64);
  EXPECT_EQ(fp8->block_inputs, 256);
  for (const char* method : {"fp8", "fbgemm_fp8", "modelopt", "compressed-tensors"}) {
    const auto parsed = Parse(R"({"quant_method":")" + std::string(method) + "\"}");
    ASSERT_TRUE(parsed.ok()) << parsed.error().message;
    EXPECT_EQ(parsed->method, method);
    EXPECT_EQ(parsed->block_inputs, 128);
  }
}

TEST(HfQuantization, WhatIsNotReadIsNamed) {
  constexpr auto kUnsupported = ErrorCode::kUnsupported;
  ExpectError(R"({"quant_method":"bitsandbytes"})", kUnsupported, "'bitsandbytes'");
  ExpectError(R"({"quant_method":"awq","version":"gemv"})", kUnsupported, "'version' is 'gemv'");
  ExpectError(R"({"quant_method":"awq","bits":8})", kUnsupported, "'bits' is '8'");
  ExpectError(R"({"quant_method":"gptq","bits":5})", kUnsupported, "'bits' is '5'");
  ExpectError(R"({"quant_method":"gptq","checkpoint_format":"marlin"})", kUnsupported, "'marlin'");
  ExpectError(R"({"quant_method":"auto-round","packing_format":"auto_round:fake"})", kUnsupported,
              "'packing_format' is 'auto_round:fake'");
  ExpectError(R"({"quant_method":"compressed-tensors","format":"marlin-24"})", kUnsupported,
              "'marlin-24'");
  ExpectError(R"({"quant_method":"compressed-tensors","format":"pack-quantized",
                  "sparsity_config":{"format":"sparse-24-bitmask"}})",
              kUnsupported, "'sparse-24-bitmask'");
  ExpectError(R"({"quant_method":"compressed-tensors","transform_config":{"config_groups":{}}})",
              kUnsupported, "'transform_config'");
  // GPTQModel and AutoRound.
  ExpectError(R"({"quant_method":"gptq","rotation":"hadamard"})", kUnsupported, "'rotation'");
  ExpectError(R"({"quant_method":"auto-round","packing_format":"auto_round:llm_compressor",
                  "data_type":"nvfp4_v2"})",
              kUnsupported, "'nvfp4_v2'");
  ExpectError(R"({"quant_method":"auto-round",
                  "packing_format":"auto_round:llm_compressor_nvfp4_e5m3"})",
              kUnsupported, "'packing_format'");
  ExpectError(R"({"quant_method":"auto-round","backend":"auto_round:marlin"})", kUnsupported,
              "'backend' is 'auto_round:marlin'");
  ExpectError(R"({"quant_method":"auto-round","rotation_config":{"block_size":32}})", kUnsupported,
              "'rotation_config'");
  ExpectError(R"({"quant_method":"auto-round","data_type":"mx_int"})", kUnsupported, "'mx_int'");
  ExpectError(R"({"quant_method":"fp8","weight_scale_semantics":"inverse"})", kUnsupported,
              "'weight_scale_semantics'");
  ExpectError(R"({"quant_method":"fp8","format":"float8_e5m2"})", kUnsupported, "'float8_e5m2'");
  EXPECT_TRUE(Parse(R"({"quant_method":"gptq","rotation":null})").ok());
  ExpectError(R"({"quant_method":"fp8","fmt":"e5m2"})", kUnsupported, "'fmt' is 'e5m2'");
  constexpr auto kCorrupt = ErrorCode::kCorrupt;
  ExpectError(R"({"quant_method":7})", kCorrupt, "'quant_method'");
  ExpectError(R"({"quant_method":"gptq","bits":"four"})", kCorrupt, "'bits'");
  for (const char* block :
       {"[128]", "[0,128]", "[128,-1]", "[128,4294967296]", "128", "[1,\"2\"]", "[128,128,128]"}) {
    ExpectError(R"({"quant_method":"fp8","weight_block_size":)" + std::string(block) + "}",
                kCorrupt, "'weight_block_size'");
  }
}

TEST(CheckpointQuantization, MlxWinsOverItsCopy) {
  const Json mlx = *Json::Parse(R"({"bits":8,"group_size":32})");
  const Json hf = *Json::Parse(R"({"quant_method":"awq"})");
  const Json null;
  const auto both = CheckpointQuantization::Parse(&mlx, &hf);
  ASSERT_TRUE(both.ok());
  EXPECT_TRUE(both->mlx && !both->hf);
  EXPECT_TRUE(CheckpointQuantization::Parse(nullptr, &mlx)->mlx);
  EXPECT_TRUE(CheckpointQuantization::Parse(&null, &hf)->hf);
  const auto none = CheckpointQuantization::Parse(nullptr, &null);
  EXPECT_TRUE(none.ok() && !none->mlx && !none->hf);
  const Json config = *Json::Parse(R"({"quantization_config": {"quant_method": "awq"},
      "text_config": {"quantization_config": {"quant_method": "gptq"}}})");
  EXPECT_EQ(CheckpointQuantization::OfConfig(config)->hf->method, "gptq");
  EXPECT_TRUE(CheckpointQuantization::OfConfig(*Json::Parse("{}")).ok());
  const Json wrong = *Json::Parse(R"({"quant_method":"aqlm"})");
  const auto refused = CheckpointQuantization::Parse(nullptr, &wrong);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message.find("field 'quantization_config'"), 0u);
}

}  // namespace
}  // namespace kvasir
