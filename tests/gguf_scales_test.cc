// Tensors ".scale" of GGUF files, which multiply a whole matrix (NVFP4 from ModelOpt checkpoints):
// what a matmul is multiplied with is what its weights would be multiplied with.
// Deliberately edits the reference's files: their scales are powers of two, so that those of blocks
// can take them over to the bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kvasir/formats/gguf.h"
#include "kvasir/formats/test_files.h"
#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

constexpr size_t kBlockBytes = 36;
constexpr size_t kBlockScales = 4;
constexpr const char* kExperts = "qwen3moe_nvfp4.gguf";
constexpr const char* kBiases = "qwen2_nvfp4.gguf";

// A file whose bytes are to be changed.
class EditedFile {
 public:
  explicit EditedFile(const char* name)
      : path_(std::string(KVASIR_SOURCE_DIR) + "/testdata/gguf/" + name),
        file_(ValueOrDie(GgufFile::Open(path_))),
        bytes_(ValueOrDie(ReadFile(path_))) {}

  const GgufFile& file() const { return file_; }
  std::vector<float> Floats(const std::string& name) const {
    std::vector<float> values(file_.Find(name)->size_bytes / sizeof(float));
    std::memcpy(values.data(), bytes_.data() + file_.Find(name)->begin,
                file_.Find(name)->size_bytes);
    return values;
  }
  void SetFloats(const std::string& name, const std::vector<float>& values) {
    std::memcpy(bytes_.data() + file_.Find(name)->begin, values.data(),
                values.size() * sizeof(float));
  }
  // The blocks of a tensor.
  std::span<char> Blocks(const std::string& name) {
    return {bytes_.data() + file_.Find(name)->begin, file_.Find(name)->size_bytes};
  }
  std::string Write(const ScratchFolder& folder) const { return folder.Write("m.gguf", bytes_); }

 private:
  const std::string path_;
  const GgufFile file_;
  std::string bytes_;
};

bool IsScale(const std::string& name) { return name.ends_with(".scale"); }

// Scales of whole matrices become those of their blocks.
int Fold(EditedFile* edited) {
  int folded = 0;
  for (const std::string& name : edited->file().names()) {
    if (!IsScale(name)) continue;
    std::vector<float> scales = edited->Floats(name);
    const auto blocks =
        edited->Blocks(name.substr(0, name.size() - std::strlen(".scale")) + ".weight");
    const size_t matrix_bytes = blocks.size() / scales.size();
    for (size_t at = 0; at < blocks.size(); ++at) {
      if (at % kBlockBytes >= kBlockScales) continue;
      const int halvings = -std::ilogb(scales[at / matrix_bytes]);
      EXPECT_GT(blocks[at] >> 3, halvings);  // still a normal number
      blocks[at] = static_cast<char>(blocks[at] - (halvings << 3));
    }
    folded += static_cast<int>(scales.size());
    edited->SetFloats(name, std::vector<float>(scales.size(), 1.0f));
  }
  return folded;
}

struct Numbers {
  std::vector<float> logits;
  std::string log;
};

struct Steps {
  int threads = 2;
  std::vector<size_t> tokens = {40, 3, 1};  // of each step, 44 in all
};

Numbers Computed(const std::string& path, Isa isa, std::optional<WeightFormat> weights,
                 const std::string& packed_weights = "", const Steps& steps = {}) {
  Numbers numbers;
  const auto backend = ValueOrDie(MakeCpuBackend({.threads = steps.threads, .isa = isa}));
  LoadOptions options = {.weight_format = weights, .packed_weights = packed_weights, .log = {}};
  options.log = [&](LogLevel, std::string_view line) { numbers.log += std::string(line) + "\n"; };
  const LoadedModel loaded = ValueOrDie(LoadModel(path, *backend, options));
  KvPool pool({.budget_bytes = size_t{64} << 20});
  const auto spec = std::make_shared<const KvCacheSpec>(loaded.model->CacheSpec({}));
  KvSequence sequence = ValueOrDie(KvSequence::Create(&pool, spec));
  Workspace workspace;
  const std::vector<Token> tokens = RandomTokens(44, loaded.model->vocab_size(), 3);
  size_t begin = 0;
  for (const size_t count : steps.tokens) {
    const SequenceRun run = {&sequence, std::span(tokens).subspan(begin, count),
                             static_cast<int64_t>(count)};
    const ConstFloatRows rows = ValueOrDie(loaded.model->Forward(std::span(&run, 1), workspace));
    for (int64_t row = 0; row < rows.rows; ++row) {
      numbers.logits.insert(numbers.logits.end(), rows.row(row), rows.row(row) + rows.cols);
    }
    begin += count;
  }
  return numbers;
}

class GgufScalesTest : public testing::TestWithParam<const char*> {};

TEST_P(GgufScalesTest, AreWorthWhatBlocksScaledByThemAre) {
  const ScratchFolder folder;
  const ScratchFolder packed;
  EditedFile edited(GetParam());
  const std::string apart = edited.Write(folder);
  const ScratchFolder other;
  EXPECT_GE(Fold(&edited), GetParam() == kExperts ? 3 * 3 + 1 : 3 * 5);
  const std::string folded = edited.Write(other);
  for (const auto weights : {std::optional<WeightFormat>(), std::optional(WeightFormat::kF32),
                             std::optional(WeightFormat::kQ8)}) {
    const Numbers wanted = Computed(folded, Isa::kScalar, weights);
    ASSERT_TRUE(std::isfinite(wanted.logits.front()));
    ASSERT_NE(wanted.logits.front(), wanted.logits.back());
    EXPECT_EQ(wanted.log.find("no decoder reads"), std::string::npos) << wanted.log;
    for (const Isa isa : SupportedIsas()) {
      SCOPED_TRACE(IsaName(isa));
      EXPECT_EQ(Computed(apart, isa, weights).logits, wanted.logits);
    }
  }
  const Numbers wanted = Computed(folded, Isa::kScalar, {});
  for (const Steps& steps : {Steps{1, {44}}, Steps{3, {7, 36, 1}}, Steps{5, {1, 1, 42}}}) {
    EXPECT_EQ(Computed(apart, SupportedIsas().back(), {}, "", steps).logits, wanted.logits);
  }
  // Panels that are written and mapped have codes alone.
  EXPECT_EQ(Computed(apart, Isa::kScalar, {}, packed.path()).logits, wanted.logits);
  const Numbers mapped = Computed(apart, SupportedIsas().back(), {}, packed.path());
  EXPECT_NE(mapped.log.find("packed weights: mapped"), std::string::npos) << mapped.log;
  EXPECT_EQ(mapped.logits, wanted.logits);
}

INSTANTIATE_TEST_SUITE_P(Models, GgufScalesTest, testing::Values(kExperts, kBiases),
                         [](const auto& info) {
                           return std::string(info.param == kExperts ? "experts" : "biases");
                         });

TEST(GgufScales, ThatOfTheHeadMultipliesLogits) {
  const ScratchFolder folder;
  EditedFile edited(kExperts);
  edited.SetFloats("output.scale", {1.0f});
  std::vector<float> wanted = Computed(edited.Write(folder), Isa::kScalar, {}).logits;
  edited.SetFloats("output.scale", {1.7f});
  for (float& logit : wanted) logit *= 1.7f;
  const ScratchFolder other;
  EXPECT_EQ(Computed(edited.Write(other), SupportedIsas().back(), {}).logits, wanted);
}

TEST(GgufScales, WrongOnesAreNamed) {
  const auto backend = ValueOrDie(MakeCpuBackend({.threads = 1}));
  const ScratchFolder folder;
  EditedFile edited(kBiases);
  edited.SetFloats("blk.1.attn_k.scale", {std::numeric_limits<float>::infinity()});
  const auto loaded = LoadModel(edited.Write(folder), *backend, {.log = {}});
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(loaded.error().message.find("blk.1.attn_k.scale"), std::string::npos)
      << loaded.error().message;
}

}  // namespace
}  // namespace kvasir
