// Which runs go on with each other's caches.
#include "kvasir/engine/model_fingerprint.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>

#include "kvasir/formats/test_files.h"
#include "kvasir/kernels/kernels.h"
#include "kvasir/kv/kv_policy_flags.h"
#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

std::string Fingerprint(const TinyModelOptions& options, const KvPolicyFlags& flags = {}) {
  const TinyModel model(options);
  return ValueOrDie(FingerprintOf(model.model(), ValueOrDie(KvPolicy::FromFlags(flags))));
}

TEST(ModelFingerprintTest, IsTheSameWhereverTheBitsAre) {
  const std::string one = Fingerprint({.folder = "transformers_qwen2_f16"});
  EXPECT_EQ(one.size(), 16u);
  EXPECT_EQ(Fingerprint({.folder = "transformers_qwen2_f16", .threads = 3}), one);
  EXPECT_EQ(Fingerprint({.folder = "testdata/gguf/qwen2_f16.gguf"}), one);
  for (const Isa isa : SupportedIsas()) {
    EXPECT_EQ(Fingerprint({.folder = "transformers_qwen2_f16", .isa = isa}), one) << IsaName(isa);
  }
  // Values of f16 are values of f32, too.
  EXPECT_EQ(Fingerprint({.folder = "transformers_qwen2_f16", .weights = WeightFormat::kF32}), one);
  // Neither how long rows stay nor which of them.
  KvPolicyFlags flags;
  flags.compact_kv_budget = 128;
  EXPECT_EQ(Fingerprint({.folder = "transformers_qwen2_f16"}, flags), one);
}

TEST(ModelFingerprintTest, DiffersWhereTheBitsDo) {
  std::set<std::string> all;
  const std::string folder = "public_qwen3_f32";
  size_t count = 0;
  const auto add = [&](const TinyModelOptions& options, const KvPolicyFlags& flags = {}) {
    all.insert(Fingerprint(options, flags));
    EXPECT_EQ(all.size(), ++count);
  };
  add({.folder = folder});
  add({.folder = "public_llama_f32"});
  add({.folder = folder, .weights = WeightFormat::kBf16});
  add({.folder = folder, .weights = WeightFormat::kBf16Dot});
  add({.folder = folder, .weights = WeightFormat::kQ8});
  KvPolicyFlags f32;
  f32.kv_dtype = "f32";
  add({.folder = folder}, f32);
  // The last rows, kept in f16 as well, hide what packed ones come to.
  KvPolicyFlags packed;
  packed.kv_bits = "8";
  packed.kv_recent = 256;
  packed.kv_dense_layers = "none";
  const std::string wide = "models/kvasir-demo";  // heads of whole groups
  for (const AttentionMath attention :
       {AttentionMath::kInt16, AttentionMath::kInt8, AttentionMath::kFloat}) {
    add({.folder = wide, .attention = attention}, packed);
  }
  packed.kv_bits = "4";
  add({.folder = wide}, packed);
}

// One weight or one number of the configuration.
TEST(ModelFingerprintTest, DiffersByOneNumber) {
  const ScratchFolder scratch;
  const std::string from = TinyModel::Folder("public_qwen3_f32");
  std::string config = *ReadFile(from + "/config.json");
  std::string weights = *ReadFile(from + "/model.safetensors");
  const auto write = [&] {
    scratch.Write("config.json", config);
    scratch.Write("model.safetensors", weights);
  };
  write();
  const auto fingerprint = [&] {
    auto backend = ValueOrDie(MakeCpuBackend({.threads = 1}));
    const LoadedModel loaded = ValueOrDie(LoadModel(scratch.path(), *backend));
    return ValueOrDie(FingerprintOf(*loaded.model, KvPolicy()));
  };
  const std::string before = fingerprint();
  EXPECT_EQ(before, Fingerprint({.folder = "public_qwen3_f32"}));
  const size_t theta = config.find("\"rope_theta\": ");
  ASSERT_NE(theta, std::string::npos);
  config.insert(theta + 14, "1");
  write();
  EXPECT_NE(fingerprint(), before);
  config.erase(theta + 14, 1);
  // The last float of the file: not its sign, which a zero would hide.
  weights[weights.size() - 2] = static_cast<char>(weights[weights.size() - 2] ^ 0x40);
  write();
  EXPECT_NE(fingerprint(), before);
}

// A factor that is 1 in all positions that are looked at.
TEST(ModelFingerprintTest, DiffersByHowQueriesGrow) {
  const ScratchFolder scratch;
  const std::string from = TinyModel::Folder("transformers_ministral3_bf16");
  std::string config = *ReadFile(from + "/config.json");
  const size_t at = config.find("\"llama_4_scaling_beta\": 0.1");
  ASSERT_NE(at, std::string::npos);
  config.insert(at + 27, "5");
  scratch.Write("config.json", config);
  scratch.Write("model.safetensors", *ReadFile(from + "/model.safetensors"));
  auto backend = ValueOrDie(MakeCpuBackend({.threads = 1}));
  const LoadedModel loaded = ValueOrDie(LoadModel(scratch.path(), *backend));
  EXPECT_NE(ValueOrDie(FingerprintOf(*loaded.model, KvPolicy())),
            Fingerprint({.folder = "transformers_ministral3_bf16"}));
}

}  // namespace
}  // namespace kvasir
