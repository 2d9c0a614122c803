#include "kvasir/convert/expert_stacks.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvasir {
namespace {

// Number c of row r is 100 r + c + first.
SourceTensor Numbered(const std::string& name, std::vector<int64_t> shape, float first) {
  SourceTensor tensor;
  tensor.name = name;
  tensor.shape = shape;
  tensor.rows.shape = shape;
  tensor.rows.read_row = [columns = shape.back(), first](int64_t row, float* out) {
    for (int64_t c = 0; c < columns; ++c) out[c] = first + static_cast<float>(100 * row + c);
  };
  return tensor;
}

std::vector<float> FirstNumbers(const SourceTensor& tensor) {
  std::vector<float> numbers;
  std::vector<float> row(static_cast<size_t>(tensor.shape.back()));
  for (int64_t i = 0; i < RowCount(tensor.shape); ++i) {
    tensor.rows.read_row(i, row.data());
    numbers.push_back(row[0]);
  }
  return numbers;
}

std::string Apart(int expert, const char* projection) {
  return "model.layers.3.mlp.experts." + std::to_string(expert) + "." + projection + ".weight";
}

TEST(ExpertStacks, ExpertsThatLieApartFollowEachOtherByNumber) {
  std::vector<SourceTensor> tensors = {Numbered("model.norm.weight", {4}, 0)};
  for (const int expert : {0, 1, 10, 2, 3, 4, 5, 6, 7, 8, 9}) {  // the order of names
    tensors.push_back(Numbered(Apart(expert, "up_proj"), {2, 4}, 1000.0f * expert));
  }
  tensors.push_back(Numbered("model.layers.3.mlp.gate.weight", {11, 4}, 0));
  const auto stacked = StackExperts(tensors);
  ASSERT_TRUE(stacked.ok()) << stacked.error().message;
  ASSERT_EQ(stacked->size(), 3u);
  EXPECT_EQ((*stacked)[0].name, "model.norm.weight");
  EXPECT_EQ((*stacked)[1].name, "model.layers.3.mlp.switch_mlp.up_proj.weight");
  EXPECT_EQ((*stacked)[2].name, "model.layers.3.mlp.gate.weight");
  EXPECT_EQ((*stacked)[1].shape, (std::vector<int64_t>{11, 2, 4}));
  std::vector<float> wanted;
  for (int expert = 0; expert < 11; ++expert) {
    wanted.push_back(1000.0f * static_cast<float>(expert));
    wanted.push_back(1000.0f * static_cast<float>(expert) + 100);
  }
  EXPECT_EQ(FirstNumbers((*stacked)[1]), wanted);
}

TEST(ExpertStacks, WhatIsMissingOrOddIsNamed) {
  const std::vector<SourceTensor> hole = {Numbered(Apart(0, "up_proj"), {2, 4}, 0),
                                          Numbered(Apart(2, "up_proj"), {2, 4}, 0)};
  const auto missing = StackExperts(hole);
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.error().message.find("up_proj.weight' of expert 1 is missing"),
            std::string::npos)
      << missing.error().message;
  const std::vector<SourceTensor> shapes = {Numbered(Apart(0, "up_proj"), {2, 4}, 0),
                                            Numbered(Apart(1, "up_proj"), {3, 4}, 0)};
  const auto odd = StackExperts(shapes);
  ASSERT_FALSE(odd.ok());
  EXPECT_NE(odd.error().message.find(Apart(1, "up_proj")), std::string::npos);
}

// What is no matrix stays as it is, whatever it is for.
TEST(ExpertStacks, BiasesOfExpertsStayApart) {
  const std::string bias = "model.layers.3.mlp.experts.0.up_proj.bias";
  const auto stacked =
      StackExperts({Numbered(Apart(0, "up_proj"), {2, 4}, 0), Numbered(bias, {2}, 0)});
  ASSERT_TRUE(stacked.ok()) << stacked.error().message;
  ASSERT_EQ(stacked->size(), 2u);
  EXPECT_EQ((*stacked)[1].name, bias);
}

TEST(ExpertStacks, GatesLieAboveUps) {
  std::vector<SourceTensor> tensors;
  tensors.push_back(Numbered("layers.0.experts.gate_up_proj", {3, 4, 8}, 0));
  tensors.push_back(Numbered("layers.0.experts.down_proj", {3, 8, 2}, 0));
  tensors.push_back(Numbered("layers.0.mlp.down_proj.weight", {8, 2}, 0));
  const std::vector<SourceTensor> split = SplitGatesAndUps(tensors);
  ASSERT_EQ(split.size(), 4u);
  EXPECT_EQ(split[0].name, "layers.0.experts.switch_glu.gate_proj.weight");
  EXPECT_EQ(split[1].name, "layers.0.experts.switch_glu.up_proj.weight");
  EXPECT_EQ(split[2].name, "layers.0.experts.switch_glu.down_proj.weight");
  EXPECT_EQ(split[3].name, "layers.0.mlp.down_proj.weight");
  EXPECT_EQ(split[0].shape, (std::vector<int64_t>{3, 2, 8}));
  EXPECT_EQ(split[2].shape, (std::vector<int64_t>{3, 8, 2}));
  EXPECT_EQ(FirstNumbers(split[0]), (std::vector<float>{0, 100, 400, 500, 800, 900}));
  EXPECT_EQ(FirstNumbers(split[1]), (std::vector<float>{200, 300, 600, 700, 1000, 1100}));
  EXPECT_EQ(FirstNumbers(split[2]).size(), 24u);
}

TEST(ExpertStacks, PartsHaveTheNamesThatModelsOfTheirKindHave) {
  const std::vector<SourceTensor> split =
      SplitGatesAndUps({Numbered("layers.0.mlp.experts.gate_up_proj", {3, 4, 8}, 0),
                        Numbered("layers.0.mlp.experts.down_proj", {3, 8, 2}, 0)});
  ASSERT_EQ(split.size(), 3u);
  EXPECT_EQ(split[0].name, "layers.0.mlp.switch_mlp.gate_proj.weight");
  EXPECT_EQ(split[1].name, "layers.0.mlp.switch_mlp.up_proj.weight");
  EXPECT_EQ(split[2].name, "layers.0.mlp.switch_mlp.down_proj.weight");
}

TEST(ExpertStacks, WhatLiesTheOtherWayRoundStays) {
  const std::vector<SourceTensor> split =
      SplitGatesAndUps({Numbered("layers.0.experts.gate_up_proj", {3, 8, 4}, 0),
                        Numbered("layers.0.experts.down_proj", {3, 2, 8}, 0),
                        Numbered("layers.1.experts.gate_up_proj", {3, 4, 8}, 0)});
  ASSERT_EQ(split.size(), 3u);
  EXPECT_EQ(split[0].name, "layers.0.experts.gate_up_proj");
  EXPECT_EQ(split[1].name, "layers.0.experts.down_proj");
  EXPECT_EQ(split[2].name, "layers.1.experts.gate_up_proj");
}

TEST(SharedMlp, OfDenseModelsComesApart) {
  const std::vector<SourceTensor> tensors = {
      Numbered("model.layers.0.shared_mlp.input_linear.weight", {4, 8}, 0),
      Numbered("model.layers.0.shared_mlp.output_linear.weight", {8, 2}, 0),
      Numbered("model.norm.weight", {8}, 0)};
  const std::vector<SourceTensor> split = SplitSharedMlp(tensors);
  ASSERT_EQ(split.size(), 4u);
  EXPECT_EQ(split[0].name, "model.layers.0.mlp.gate_proj.weight");
  EXPECT_EQ(split[1].name, "model.layers.0.mlp.up_proj.weight");
  EXPECT_EQ(split[2].name, "model.layers.0.mlp.down_proj.weight");
  EXPECT_EQ(split[3].name, "model.norm.weight");
  EXPECT_EQ(split[1].shape, (std::vector<int64_t>{2, 8}));
  EXPECT_EQ(FirstNumbers(split[0]), (std::vector<float>{0, 100}));
  EXPECT_EQ(FirstNumbers(split[1]), (std::vector<float>{200, 300}));
}

TEST(SharedMlp, BesideExpertsAndOfOddRowsItStays) {
  const char* const name = "model.layers.0.shared_mlp.input_linear.weight";
  const std::vector<SourceTensor> both = SplitSharedMlp(
      {Numbered(name, {4, 8}, 0),
       Numbered("model.layers.1.block_sparse_moe.input_linear.weight", {3, 4, 8}, 0)});
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].name, name);
  const std::vector<SourceTensor> odd = SplitSharedMlp({Numbered(name, {5, 8}, 0)});
  ASSERT_EQ(odd.size(), 1u);
  EXPECT_EQ(odd[0].name, name);
}

}  // namespace
}  // namespace kvasir
