// A GGUF file and the safetensors folder it was made of give the same numbers.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <string>

#include "kvasir/formats/checkpoint.h"
#include "kvasir/formats/gguf.h"
#include "kvasir/formats/model_config.h"
#include "kvasir/model/tensor_list.h"
#include "kvasir/tensor/packed_matrix.h"
#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

struct Pair {
  const char* gguf;
  const char* folder;
};

class GgufModelTest : public testing::TestWithParam<Pair> {};

std::vector<float> Logits(const std::string& path, const std::vector<Token>& tokens,
                          std::optional<WeightFormat> weights = {}) {
  TinyModelOptions options;
  options.folder = path;
  options.weights = weights;
  TinyModel tiny(options);
  KvSequence sequence = tiny.NewSequence();
  return tiny.Feed(sequence, tokens);
}

TEST_P(GgufModelTest, LogitsAreThoseOfTheFolder) {
  const std::vector<Token> tokens = RandomTokens(80, 256, 5);
  const auto wanted = Logits(GetParam().folder, tokens);
  const auto actual = Logits("testdata/gguf/" + std::string(GetParam().gguf), tokens);
  EXPECT_EQ(actual, wanted);
}

INSTANTIATE_TEST_SUITE_P(Converted, GgufModelTest,
                         testing::Values(
                             // Llama3's parameters are found again in the file's divisors.
                             Pair{"llama3_rope_bf16.gguf", "transformers_llama3_rope_bf16"},
                             Pair{"qwen2_f16.gguf", "transformers_qwen2_f16"},
                             // Queries, keys and values in one tensor, and their biases.
                             Pair{"qwen2_fused_f16.gguf", "transformers_qwen2_f16"},
                             // 1/sqrt(20) went through f32 and comes out as the same float.
                             Pair{"gemma3_bf16-00001-of-00002.gguf",
                                  "transformers_gemma3_sharded_bf16"},
                             Pair{"qwen3moe_bf16.gguf", "transformers_qwen3_moe_bf16"},
                             // Gates and ups in turns, apart and each of blocks of its own.
                             Pair{"gpt_oss_mxfp4.gguf", "transformers_gpt_oss_mxfp4"},
                             Pair{"gemma4_experts_bf16.gguf", "transformers_gemma4_experts_bf16"},
                             Pair{"gemma4_shared_bf16.gguf", "transformers_gemma4_shared_bf16"},
                             Pair{"mistral3_bf16.gguf", "transformers_ministral3_bf16"},
                             Pair{"smollm3_bf16.gguf", "transformers_smollm3_bf16"},
                             // Gates and ups of the folder are one matrix, of the file two.
                             Pair{"granite_bf16.gguf", "transformers_granite_dense_bf16"},
                             Pair{"lfm2_bf16.gguf", "transformers_lfm2_bf16"},
                             Pair{"lfm2moe_bf16.gguf", "transformers_lfm2_moe_bf16"},
                             // What makes keys and values lies in two stacks in the file, in one
                             // matrix in the folder, and in both where the file is older.
                             Pair{"deepseek2_bf16.gguf", "transformers_deepseek_v3_bf16"},
                             Pair{"deepseek2_lite_bf16.gguf", "transformers_deepseek_v2_lite_bf16"},
                             Pair{"glm4_moe_lite_bf16.gguf", "transformers_glm4_moe_lite_bf16"},
                             Pair{"glm4_bf16.gguf", "transformers_glm4_bf16"},
                             Pair{"glm4moe_bf16.gguf", "transformers_glm4_moe_bf16"},
                             Pair{"olmo2_bf16.gguf", "transformers_olmo3_bf16"},
                             Pair{"phi3_bf16.gguf", "transformers_phi4_mini_bf16"}));

class GgufDeltaNetTest : public testing::TestWithParam<Pair> {};

size_t Best(std::span<const float> logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// Not the same bits: value heads in rounds (of qwen35 and qwen35moe) change the order in which
// out_proj adds, and a converter's exp(A_log) may differ from ours in the last one. In float32,
// where no activation is rounded to the other side for it.
TEST_P(GgufDeltaNetTest, LogitsAreCloseToThoseOfTheFolder) {
  constexpr size_t kVocabulary = 256;
  const std::vector<Token> tokens = RandomTokens(80, kVocabulary, 5);
  const auto wanted = Logits(GetParam().folder, tokens, WeightFormat::kF32);
  const auto actual =
      Logits("testdata/gguf/" + std::string(GetParam().gguf), tokens, WeightFormat::kF32);
  ASSERT_EQ(actual.size(), wanted.size());
  float largest = 0;
  float worst = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    largest = std::max(largest, std::fabs(wanted[i]));
    worst = std::max(worst, std::fabs(actual[i] - wanted[i]));
  }
  EXPECT_LE(worst, 1e-4f * largest);
  for (size_t row = 0; row < tokens.size(); ++row) {
    EXPECT_EQ(Best(std::span(actual).subspan(row * kVocabulary, kVocabulary)),
              Best(std::span(wanted).subspan(row * kVocabulary, kVocabulary)))
        << "row " << row;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Converted, GgufDeltaNetTest,
    testing::Values(Pair{"qwen35_bf16.gguf", "transformers_qwen3_5_bf16"},
                    // Behind its layers a block that drafts; the shared expert's gate is one row.
                    Pair{"qwen35moe_bf16.gguf", "transformers_qwen3_5_moe_bf16"},
                    // Steps and decays joined by key head, and layers without experts.
                    Pair{"qwen3next_bf16.gguf", "transformers_qwen3_next_bf16"},
                    Pair{"granitehybrid_bf16.gguf", "transformers_granite_hybrid_moe_bf16"}));

// Matrices of which parts are taken are one tensor nevertheless.
TEST(TensorList, NamesNothingTwice) {
  const std::string models = std::string(KVASIR_SOURCE_DIR) + "/testdata/models";
  for (const auto& entry : std::filesystem::directory_iterator(models)) {
    if (!entry.is_directory()) continue;
    SCOPED_TRACE(entry.path());
    const ModelConfig config = ValueOrDie(ModelConfig::Load(entry.path()));
    const Checkpoint checkpoint = ValueOrDie(Checkpoint::Open(entry.path()));
    std::set<std::string> names;
    for (const ListedTensor& tensor : ValueOrDie(ListTensors(checkpoint, config)).tensors) {
      EXPECT_TRUE(names.insert(tensor.name).second) << tensor.name;
    }
  }
}

// Those of blocks that draft are not asked for, and no reason to warn.
TEST(GgufModel, EveryTensorOfDeltaNetsIsKnown) {
  for (const char* const name :
       {"qwen35_bf16.gguf", "qwen35moe_bf16.gguf", "qwen3next_bf16.gguf"}) {
    const auto backend = ValueOrDie(MakeCpuBackend({.threads = 1}));
    std::string warnings;
    LoadOptions options;
    options.log = [&](LogLevel, std::string_view message) { warnings += message; };
    ValueOrDie(
        LoadModel(TinyModel::Folder("testdata/gguf/" + std::string(name)), *backend, options));
    EXPECT_EQ(warnings, "") << name;
  }
}

// What the documentation promises of --weights stored.
TEST(GgufModel, Q8_0KeepsItsValuesAsQ8) {
  const std::string path = std::string(KVASIR_SOURCE_DIR) + "/testdata/gguf/qwen3_q8_0.gguf";
  const GgufFile file = ValueOrDie(GgufFile::Open(path));
  int matrices = 0;
  for (const std::string& name : file.names()) {
    const std::vector<int64_t>& shape = file.Find(name)->shape;
    if (shape.size() != 2) continue;
    ++matrices;
    const WeightTensor tensor = ValueOrDie(file.Get(name, shape));
    ASSERT_EQ(tensor.stored_format, WeightFormat::kQ8);
    PackedMatrix packed = ValueOrDie(PackedMatrix::Allocate(shape[0], shape[1], WeightFormat::kQ8));
    std::vector<float> stored(static_cast<size_t>(shape[1]));
    std::vector<float> kept(stored.size());
    CodedRow codes;
    for (int64_t row = 0; row < shape[0]; ++row) {
      tensor.read_row(row, stored.data());
      tensor.read_codes(row, &codes);
      packed.SetCodedRow(row, codes);
      packed.GetRow(row, kept.data());
      ASSERT_EQ(kept, stored) << name << " row " << row;
    }
  }
  EXPECT_EQ(matrices, 4 * 7 + 1);
}

}  // namespace
}  // namespace kvasir
