// Models with delta nets as other folders and as GGUF files.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvasir/base/file.h"
#include "kvasir/convert/convert_test_util.h"
#include "kvasir/formats/checkpoint.h"
#include "kvasir/formats/gguf.h"
#include "kvasir/formats/test_files.h"
#include "kvasir/model/model_loader.h"

namespace kvasir {
namespace {

// As published, with the rates of decay in f32 among weights of 16 bits.
TEST(ConvertDeltaNets, WhatStatesHangOnStaysFloat32) {
  const ScratchFolder scratch;
  const std::string wide = scratch.File("wide");
  ASSERT_TRUE(Convert(Path("testdata/models/transformers_qwen3_5_bf16"), "f32", wide).ok());
  for (const char* type : {"bf16", "f16"}) {
    const std::string out = scratch.File(type);
    ASSERT_TRUE(Convert(wide, type, out).ok()) << type;
    const auto written = ValueOrDie(Checkpoint::Open(out));
    const std::string layer = "model.layers.0.linear_attn.";
    for (const char* name : {"A_log", "dt_bias", "norm.weight"}) {
      EXPECT_EQ(written.Find(layer + name)->dtype, DType::kF32) << type << " " << name;
    }
    EXPECT_NE(written.Find(layer + "in_proj_a.weight")->dtype, DType::kF32) << type;
    if (std::string_view(type) == "bf16") {
      EXPECT_EQ(Logits(out, WeightFormat::kF32), Logits(wide, WeightFormat::kF32));
    }
  }
}

// A GGUF file of a folder as MLX writes them: norms have their 1, the taps of convolutions come
// before the one input. Decoded first, as what is quantized is rounded on the way.
TEST(ConvertDeltaNets, OfMlxBecomeGguf) {
  const ScratchFolder scratch;
  const std::string folder = scratch.File("decoded");
  ASSERT_TRUE(Convert(Path("testdata/models/mlx_qwen3_5_q4g32_bf16"), "f32", folder).ok());
  const std::string file = scratch.File("out.gguf");
  const Status done = Write(folder, "f32", file);
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(Logits(file, WeightFormat::kF32), Logits(folder, WeightFormat::kF32));
}

// Those that a script wrote after llama.cpp's converter, with the reference package.
TEST(ConvertDeltaNets, AreAsConvertersWriteThem) {
  const ScratchFolder scratch;
  for (const auto& [source, golden] :
       {std::pair{"transformers_qwen3_5_bf16", "qwen35_bf16.gguf"},
        std::pair{"transformers_qwen3_5_moe_bf16", "qwen35moe_bf16.gguf"},
        std::pair{"transformers_qwen3_next_bf16", "qwen3next_bf16.gguf"}}) {
    SCOPED_TRACE(golden);
    const std::string out = scratch.File(golden);
    const Status done = Write(Path(std::string("testdata/models/") + source), "bf16", out);
    ASSERT_TRUE(done.ok()) << done.error().message;
    const GgufFile written = ValueOrDie(GgufFile::Open(out));
    const GgufFile wanted =
        ValueOrDie(GgufFile::Open(Path(std::string("testdata/gguf/") + golden)));
    EXPECT_TRUE(CheckMtpHead(out).ok());  // not all goldens have it
    ExpectSameTensors(written, wanted);
  }
}

// A layer that drafts and cannot be read stays behind.
TEST(ConvertDeltaNets, ADraftingLayerOfAnotherShapeIsNotWritten) {
  const ScratchFolder scratch;
  const std::string folder = scratch.File("model");
  std::filesystem::copy(Path("testdata/models/transformers_qwen3_5_bf16"), folder);
  const std::string header = "\"mtp.norm.weight\"";
  std::string bytes = ValueOrDie(ReadFile(folder + "/model.safetensors"));
  const size_t at = bytes.find(header);
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, header.size(), "\"mtp.morn.weight\"");
  ASSERT_TRUE(WriteFileAtomic(folder + "/model.safetensors", bytes).ok());
  const std::string out = scratch.File("out.gguf");
  const Status done = Write(folder, "bf16", out);
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_FALSE(CheckMtpHead(out).ok());
  EXPECT_EQ(Logits(out, {}).size(), Logits(folder, {}).size());
}

}  // namespace
}  // namespace kvasir
