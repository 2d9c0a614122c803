// Promise 1 on whole models whose weights are kept as files code them: every instruction set, and
// weights packed, written and mapped, give the same bits.
// Deliberately of random codes: codes of every value are wanted.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <optional>
#include <random>

#include "kvasir/formats/checkpoint.h"
#include "kvasir/formats/mlx_quantization.h"
#include "kvasir/formats/safetensors_writer.h"
#include "kvasir/formats/test_files.h"
#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

namespace fs = std::filesystem;

using Bytes = std::vector<std::byte>;

// Codes of a mode and scales that make a weight 1/8 or so.
class RandomCodes {
 public:
  explicit RandomCodes(MlxMode mode) : mode_(mode) {}

  Bytes Codes(size_t count) {
    const bool is_fp8 = mode_ == MlxMode::kMxfp8;
    Bytes codes(is_fp8 ? count : count / 2);
    for (std::byte& code : codes) {
      // E4M3 below 2: larger ones, seldom in a trained model, would be all that counts here.
      code = static_cast<std::byte>(is_fp8 ? random_() % 2 << 7 | random_() % 64 : random_());
    }
    return codes;
  }
  Bytes Scales(size_t count) {
    Bytes scales(count);
    // E4M3: 0, and 2^-9 to 2^-4. E8M0: 2^-6 to 2^-3.
    for (std::byte& scale : scales) {
      const auto random = static_cast<uint32_t>(random_());
      scale = static_cast<std::byte>(mode_ == MlxMode::kNvfp4 ? random % 24 : 121 + random % 4);
    }
    return scales;
  }

 private:
  const MlxMode mode_;
  std::mt19937 random_{11};
};

struct Tensor {
  TensorDeclaration declaration;
  Bytes bytes;
};

// The tensors of a checkpoint, matrices of whole groups replaced by random codes.
std::vector<Tensor> Quantized(const Checkpoint& checkpoint, MlxMode mode) {
  const int64_t group = mode == MlxMode::kNvfp4 ? 16 : 32;
  const int64_t codes_of_word = mode == MlxMode::kMxfp8 ? 4 : 8;
  RandomCodes random(mode);
  std::vector<Tensor> tensors;
  for (const std::string& name : checkpoint.names()) {
    const TensorView& view = *checkpoint.Find(name);
    const size_t elements = static_cast<size_t>(view.elements());
    if (view.shape.size() != 2 || view.shape[1] % 32 != 0) {
      const size_t size = elements * DTypeBytes(view.dtype);
      tensors.push_back({{name, view.dtype, view.shape}, Bytes(view.data, view.data + size)});
      continue;
    }
    const std::string module = name.substr(0, name.rfind('.'));
    const int64_t outputs = view.shape[0];
    const int64_t inputs = view.shape[1];
    tensors.push_back({{module + ".weight", DType::kU32, {outputs, inputs / codes_of_word}},
                       random.Codes(elements)});
    tensors.push_back({{module + ".scales", DType::kU8, {outputs, inputs / group}},
                       random.Scales(elements / static_cast<size_t>(group))});
  }
  // Wide types first keep data aligned.
  std::stable_sort(tensors.begin(), tensors.end(), [](const Tensor& a, const Tensor& b) {
    return DTypeBytes(a.declaration.dtype) > DTypeBytes(b.declaration.dtype);
  });
  return tensors;
}

// The model of `source` with weights of this mode, in the existing folder `out`.
void WriteModel(const std::string& source, MlxMode mode, const std::string& out) {
  const Checkpoint checkpoint = ValueOrDie(Checkpoint::Open(source));
  const std::vector<Tensor> tensors = Quantized(checkpoint, mode);
  std::vector<TensorDeclaration> declarations;
  for (const Tensor& tensor : tensors) declarations.push_back(tensor.declaration);
  auto writer = ValueOrDie(SafetensorsWriter::Create(out + "/model.safetensors", declarations));
  for (const Tensor& tensor : tensors) {
    OrDie(writer.Append(tensor.declaration.name, tensor.bytes));
  }
  OrDie(writer.Finish());
  std::string config = ValueOrDie(ReadFile(source + "/config.json"));
  const std::string mode_name(MlxModeName(mode));
  config.insert(config.rfind('}'), ",\"quantization\": {\"mode\": \"" + mode_name + "\"}");
  OrDie(WriteFileAtomic(out + "/config.json", config));
}

// A head of its own and experts; tied embeddings and matrices that stay dense beside the others.
constexpr const char* kExperts = "transformers_qwen3_moe_bf16";
constexpr const char* kTied = "transformers_gemma3_sharded_bf16";

struct Case {
  const char* name;
  const char* source;
  // Its matrices are replaced by random codes of this mode; none: it has codes itself.
  std::optional<MlxMode> mode;
  const char* kept_as;  // the format of a matrix of attention in memory
};

class CodedModelTest : public testing::TestWithParam<Case> {
 protected:
  CodedModelTest() {
    const std::string source = TinyModel::Folder(GetParam().source);
    if (GetParam().mode) {
      WriteModel(source, *GetParam().mode, folder_.path());
    } else {
      fs::copy(source, folder_.path());
    }
  }

  // Of a prompt in one step, then token by token, with matmuls of many rows, few and one.
  std::vector<float> Logits(Isa isa, int threads, const std::string& packed_weights) {
    log_.clear();
    const auto backend = ValueOrDie(MakeCpuBackend({.threads = threads, .isa = isa}));
    LoadOptions options = {.weight_format = {}, .packed_weights = packed_weights, .log = {}};
    options.log = [this](LogLevel, std::string_view line) { log_ += std::string(line) + "\n"; };
    const LoadedModel loaded = ValueOrDie(LoadModel(folder_.path(), *backend, options));
    KvPool pool({.budget_bytes = size_t{64} << 20});
    const auto spec = std::make_shared<const KvCacheSpec>(loaded.model->CacheSpec({}));
    KvSequence sequence = ValueOrDie(KvSequence::Create(&pool, spec));
    Workspace workspace;
    const std::vector<Token> tokens = RandomTokens(60, loaded.model->vocab_size(), 3);
    std::vector<float> logits;
    size_t begin = 0;
    for (const size_t count : {50, 5, 3, 1, 1}) {
      const SequenceRun run = {&sequence, std::span(tokens).subspan(begin, count),
                               static_cast<int64_t>(count)};
      const ConstFloatRows rows = ValueOrDie(loaded.model->Forward(std::span(&run, 1), workspace));
      for (int64_t row = 0; row < rows.rows; ++row) {
        logits.insert(logits.end(), rows.row(row), rows.row(row) + rows.cols);
      }
      begin += count;
    }
    return logits;
  }
  bool Said(std::string_view words) const { return log_.find(words) != std::string::npos; }

  const ScratchFolder folder_;
  std::string log_;
};

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

TEST_P(CodedModelTest, EveryInstructionSetPackedWrittenAndMapped) {
  const std::vector<float> wanted = Logits(Isa::kScalar, 1, "");
  for (const float logit : wanted) ASSERT_TRUE(std::isfinite(logit));
  ASSERT_NE(wanted.front(), wanted.back());
  const ScratchFolder packed;
  for (const Isa isa : SupportedIsas()) {
    SCOPED_TRACE(IsaName(isa));
    EXPECT_TRUE(SameBits(Logits(isa, 2, ""), wanted));
    // The first one writes, the others read what another instruction set has written.
    EXPECT_TRUE(SameBits(Logits(isa, 1, packed.path()), wanted));
    EXPECT_TRUE(
        Said(isa == SupportedIsas().front() ? "packed weights: wrote " : "packed weights: mapped "))
        << log_;
  }
  ASSERT_EQ(packed.FileCount(), 1u);
  const auto file = fs::directory_iterator(packed.path())->path().string();
  const std::string key = "layers.1.self_attn.q_proj.weight " + std::string(GetParam().kept_as);
  const std::string contents = ValueOrDie(ReadFile(file));
  EXPECT_NE(contents.find(key), std::string::npos) << key;
  // Routers are decoded, and their activations not rounded.
  if (GetParam().source == kExperts) {
    EXPECT_NE(contents.find("layers.0.mlp.gate.weight bf16"), std::string::npos);
    EXPECT_EQ(contents.find("layers.0.mlp.gate.weight bf16_dot"), std::string::npos);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Models, CodedModelTest,
    testing::Values(Case{"mxfp4_experts", kExperts, MlxMode::kMxfp4, "mxfp4"},
                    Case{"mxfp4_tied", kTied, MlxMode::kMxfp4, "mxfp4"},
                    Case{"nvfp4_experts", kExperts, MlxMode::kNvfp4, "nvfp4"},
                    Case{"nvfp4_tied", kTied, MlxMode::kNvfp4, "nvfp4"},
                    Case{"mxfp8_experts", kExperts, MlxMode::kMxfp8, "mxfp8"},
                    Case{"mxfp8_tied", kTied, MlxMode::kMxfp8, "mxfp8"},
                    Case{"awq", "hf_qwen3_awq", {}, "q4_affine"},
                    Case{"gptq", "hf_qwen3_gptq", {}, "q4_affine"},
                    Case{"compressed_tensors", "hf_qwen3_compressed_tensors", {}, "fp8"},
                    Case{"fp8", "hf_qwen3_fp8", {}, "fp8"},
                    Case{"modelopt", "hf_qwen3_modelopt", {}, "fp8"}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kvasir
