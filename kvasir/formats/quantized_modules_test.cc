// Which tensors make a matrix, and what errors name. Layouts: hf_weights_test.cc,
// mlx_weights_test.cc.
#include "kvasir/formats/quantized_modules.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "kvasir/formats/safetensors.h"
#include "kvasir/formats/safetensors_writer.h"
#include "kvasir/formats/test_files.h"

namespace kvasir {
namespace {

// A checkpoint with modules of the goldens, under their names with '.' for '/'.
class QuantizedModulesTest : public testing::Test {
 protected:
  void Write(const std::vector<std::string>& modules) {
    const auto golden = *SafetensorsFile::Open(std::string(KVASIR_SOURCE_DIR) +
                                               "/testdata/formats/hf_weights.safetensors");
    std::vector<TensorDeclaration> declared;
    std::map<std::string, const TensorView*> views;
    for (const auto& [name, view] : golden.tensors()) {
      const std::string module = name.substr(0, name.rfind('.'));
      if (std::find(modules.begin(), modules.end(), module) == modules.end()) continue;
      std::string own = name;
      std::replace(own.begin(), own.end(), '/', '.');
      declared.push_back({own, view.dtype, view.shape});
      views[own] = &view;
    }
    auto writer = *SafetensorsWriter::Create(folder_.File("model.safetensors"), declared);
    for (const auto& [name, view] : views) {
      const auto bytes = static_cast<size_t>(view->elements()) * DTypeBytes(view->dtype);
      ASSERT_TRUE(writer.Append(name, {view->data, bytes}).ok());
    }
    ASSERT_TRUE(writer.Finish().ok());
  }

  const ScratchFolder folder_;
};

TEST_F(QuantizedModulesTest, PartsBelongToTheirModule) {
  Write({"awq/bf16", "modelopt/nvfp4"});
  const Checkpoint checkpoint = *Checkpoint::Open(folder_.path());
  CheckpointQuantization quantization;
  quantization.hf = HfQuantization{.kind = HfQuantization::Kind::kAwq, .method = "awq"};
  const QuantizedModules modules(checkpoint, quantization);
  EXPECT_TRUE(modules.Has("awq.bf16"));
  EXPECT_FALSE(modules.Has("awq"));
  EXPECT_FALSE(modules.Has("awq.bf16.qweight"));
  EXPECT_EQ(modules.PartsOf("awq.bf16"),
            (std::vector<std::string>{"awq.bf16.qweight", "awq.bf16.qzeros", "awq.bf16.scales"}));
  const auto read = modules.Read("awq.bf16");
  ASSERT_TRUE(read.ok()) << read.error().message;
  EXPECT_TRUE(read->is_mapped && read->is_scattered);
  EXPECT_EQ(read->source.size(), 1u);
  // Scales of activations too, which nobody else asks for.
  const auto parts = modules.PartsOf("modelopt.nvfp4");
  EXPECT_NE(std::find(parts.begin(), parts.end(), "modelopt.nvfp4.input_scale"), parts.end());
  EXPECT_EQ(parts.size(), 4u);
}

TEST_F(QuantizedModulesTest, ErrorsNameFileAndModule) {
  Write({"awq/bf16", "modelopt/nvfp4"});
  const Checkpoint checkpoint = *Checkpoint::Open(folder_.path());
  const CheckpointQuantization nothing;
  const QuantizedModules undescribed(checkpoint, nothing);
  const auto awq = undescribed.Read("awq.bf16");
  ASSERT_FALSE(awq.ok());
  EXPECT_EQ(awq.error().message.find(folder_.File("model.safetensors") + ": module 'awq.bf16': "),
            0u)
      << awq.error().message;
  EXPECT_NE(awq.error().message.find("config.json"), std::string::npos);
  EXPECT_TRUE(undescribed.Read("modelopt.nvfp4").ok());
  CheckpointQuantization gptq;
  gptq.hf = HfQuantization{.kind = HfQuantization::Kind::kGptq, .method = "gptq"};
  const auto other = QuantizedModules(checkpoint, gptq).Read("modelopt.nvfp4");
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, ErrorCode::kUnsupported);
}

// gpt-oss: experts as blocks of codes, stacked.
TEST_F(QuantizedModulesTest, BlocksOfMxfp4AreMatrices) {
  const auto write = [&](const std::vector<int64_t>& blocks, const std::vector<int64_t>& scales,
                         DType dtype) {
    const std::vector<TensorDeclaration> tensors = {{"m.up_blocks", dtype, blocks},
                                                    {"m.up_scales", DType::kU8, scales}};
    auto writer = SafetensorsWriter::Create(folder_.File("model.safetensors"), tensors);
    ASSERT_TRUE(writer.ok()) << writer.error().message;
    for (size_t i = 0; i < tensors.size(); ++i) {
      std::vector<std::byte> bytes(*DenseTensorBytes(tensors[i].dtype, tensors[i].shape));
      // Codes 1 (0.5) and 10 (-1), in turns; scales of 2 to the power of 1.
      std::fill(bytes.begin(), bytes.end(), i == 0 ? std::byte{0xA1} : std::byte{128});
      ASSERT_TRUE(writer->Append(tensors[i].name, bytes).ok());
    }
    ASSERT_TRUE(writer->Finish().ok());
  };
  write({2, 3, 2, 16}, {2, 3, 2}, DType::kU8);
  {
    const Checkpoint checkpoint = *Checkpoint::Open(folder_.path());
    const CheckpointQuantization nothing;
    const QuantizedModules modules(checkpoint, nothing);
    ASSERT_TRUE(modules.Has("m.up"));
    EXPECT_EQ(modules.PartsOf("m.up"), (std::vector<std::string>{"m.up_blocks", "m.up_scales"}));
    const auto read = modules.Read("m.up");
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read->shape, (std::vector<int64_t>{2, 3, 64}));
    EXPECT_EQ(read->stored_format, WeightFormat::kMxfp4);
    std::vector<float> row(64);
    read->read_row(5, row.data());
    for (size_t i = 0; i < row.size(); ++i) EXPECT_EQ(row[i], i % 2 == 0 ? 1.0f : -2.0f);
  }
  using Shape = std::vector<int64_t>;
  for (const auto& [blocks, scales, dtype] :
       {std::tuple{Shape{2, 3, 2, 8}, Shape{2, 3, 2}, DType::kU8},
        std::tuple{Shape{2, 3, 2, 16}, Shape{2, 3, 3}, DType::kU8},
        std::tuple{Shape{2, 3, 2, 16}, Shape{2, 3, 2}, DType::kF32},
        std::tuple{Shape{2, 16}, Shape{2}, DType::kU8}, std::tuple{Shape{16}, Shape{1}, DType::kU8},
        std::tuple{Shape{0, 3, 2, 16}, Shape{0, 3, 2}, DType::kU8}}) {
    write(blocks, scales, dtype);
    const auto checkpoint = Checkpoint::Open(folder_.path());
    if (!checkpoint.ok()) continue;  // refused before
    const CheckpointQuantization nothing;
    const auto read = QuantizedModules(*checkpoint, nothing).Read("m.up");
    ASSERT_FALSE(read.ok());
    EXPECT_EQ(read.error().code, ErrorCode::kCorrupt);
    EXPECT_NE(read.error().message.find("m.up"), std::string::npos);
  }
}

// Rows of a scattered matrix stay whole in what is given back.
TEST_F(QuantizedModulesTest, ScatteredRowsCanBeTaken) {
  Write({"awq/groups_of_128"});
  const Checkpoint checkpoint = *Checkpoint::Open(folder_.path());
  CheckpointQuantization quantization;
  quantization.hf = HfQuantization{.kind = HfQuantization::Kind::kAwq, .method = "awq"};
  const WeightTensor all = *QuantizedModules(checkpoint, quantization).Read("awq.groups_of_128");
  const WeightTensor some = RowsOf(all, 7, 3);
  EXPECT_EQ(some.source[0].size(), all.source[0].size());
  std::vector<float> wanted(static_cast<size_t>(all.shape[1]));
  std::vector<float> actual(wanted.size());
  for (int64_t row = 0; row < 3; ++row) {
    all.read_row(7 + row, wanted.data());
    some.read_row(row, actual.data());
    EXPECT_EQ(actual, wanted) << row;
  }
}

}  // namespace
}  // namespace kvasir
