// Tensors of hybrids as GGUF files have them, of every shape in which checkpoints have them.
#include "kvasir/convert/gguf_hybrids.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <string>
#include <vector>

namespace kvasir {
namespace {

// Numbers that count from 0.
SourceTensor Counting(const std::string& name, std::vector<int64_t> shape) {
  SourceTensor tensor;
  tensor.name = name;
  tensor.shape = shape;
  tensor.rows.shape = shape;
  tensor.rows.read_row = [columns = shape.back()](int64_t row, float* out) {
    std::iota(out, out + columns, static_cast<float>(row * columns));
  };
  return tensor;
}

std::vector<float> NumbersOf(const SourceTensor& tensor) {
  const int64_t columns = tensor.shape.back();
  std::vector<float> numbers(static_cast<size_t>(RowCount(tensor.shape) * columns));
  for (int64_t row = 0; row < RowCount(tensor.shape); ++row) {
    tensor.rows.read_row(row, numbers.data() + row * columns);
  }
  return numbers;
}

ModelConfig MambaConfig() {
  ModelConfig config;
  config.delta_net = {.is_mamba = true, .key_heads = 2, .value_heads = 6};
  return config;
}

SourceTensor Written(const std::string& name, std::vector<int64_t> shape) {
  return GgufHybrids({Counting(name, std::move(shape))}, MambaConfig())[0];
}

using Shape = std::vector<int64_t>;

TEST(GgufHybrids, ConvolutionsOfAnyShapeHaveARowForEachChannel) {
  for (const char* const name : {"layers.0.mamba.conv1d.weight", "layers.0.conv.conv.weight"}) {
    for (const Shape& shape : {Shape{5, 1, 3}, Shape{5, 3, 1}, Shape{5, 3}}) {
      const SourceTensor written = Written(name, shape);
      EXPECT_EQ(written.shape, (Shape{5, 3}));
      EXPECT_EQ(NumbersOf(written), NumbersOf(Counting(name, {15})));
    }
  }
}

TEST(GgufHybrids, NumbersOfHeadsAndGroupsAreRows) {
  for (const Shape& shape : {Shape{6}, Shape{6, 1}, Shape{1, 6}}) {
    const SourceTensor skips = Written("layers.0.mamba.D", shape);
    EXPECT_EQ(skips.name, "layers.0.mamba.D");
    EXPECT_EQ(skips.shape, (Shape{6, 1}));
    EXPECT_EQ(NumbersOf(skips), (std::vector<float>{0, 1, 2, 3, 4, 5}));
    const SourceTensor rates = Written("layers.0.mamba.A_log", shape);
    EXPECT_EQ(rates.name, "layers.0.mamba.A");
    EXPECT_EQ(rates.shape, (Shape{6, 1}));
    EXPECT_NEAR(NumbersOf(rates)[2], -std::exp(2.0f), 1e-5);
  }
  for (const Shape& shape : {Shape{8}, Shape{2, 4}}) {
    const SourceTensor norm = Written("layers.0.mamba.norm.weight", shape);
    EXPECT_EQ(norm.shape, (Shape{2, 4}));
    EXPECT_EQ(NumbersOf(norm), (std::vector<float>{0, 1, 2, 3, 4, 5, 6, 7}));
  }
  EXPECT_EQ(Written("layers.0.mamba.dt_bias", {6}).shape, (Shape{6}));
  EXPECT_EQ(Written("layers.0.self_attn.q_proj.weight", {6, 2}).shape, (Shape{6, 2}));
}

}  // namespace
}  // namespace kvasir
