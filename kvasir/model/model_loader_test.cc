#include "kvasir/model/model_loader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>

#include "kvasir/formats/checkpoint.h"
#include "kvasir/formats/safetensors_writer.h"
#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

// A copy of a tiny checkpoint with some tensors left out, renamed or added.
class ModelLoaderTest : public testing::Test {
 protected:
  ModelLoaderTest()
      : source_(ValueOrDie(Checkpoint::Open(TinyModel::Folder("public_llama_f32")))),
        folder_(testing::TempDir() + "/kvasir_loader_" +
                testing::UnitTest::GetInstance()->current_test_info()->name()) {
    for (const std::string& name : source_.names()) tensors_[name] = *source_.Find(name);
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    std::filesystem::copy_file(TinyModel::Folder("public_llama_f32") + "/config.json",
                               folder_ + "/config.json",
                               std::filesystem::copy_options::overwrite_existing);
  }

  Result<LoadedModel> Load() {
    std::vector<TensorDeclaration> declarations;
    for (const auto& [name, tensor] : tensors_) {
      declarations.push_back({name, tensor.dtype, tensor.shape});
    }
    auto writer =
        ValueOrDie(SafetensorsWriter::Create(folder_ + "/model.safetensors", declarations));
    for (const auto& [name, tensor] : tensors_) {
      const size_t bytes = static_cast<size_t>(tensor.elements()) * DTypeBytes(tensor.dtype);
      OrDie(writer.Append(name, {tensor.data, bytes}));
    }
    OrDie(writer.Finish());
    LoadOptions options;
    options.log = [this](LogLevel, std::string_view line) { log_ += line; };
    return LoadModel(folder_, *backend_, options);
  }

  Checkpoint source_;
  std::map<std::string, TensorView> tensors_;
  std::string folder_;
  std::string log_;
  std::unique_ptr<Backend> backend_ = ValueOrDie(MakeCpuBackend({.threads = 1}));
};

TEST_F(ModelLoaderTest, UnknownTensorsAreNamedAndKnownUselessOnesIgnored) {
  const TensorView some = tensors_.at("model.norm.weight");
  tensors_["model.layers.0.self_attn.rotary_emb.inv_freq"] = some;
  tensors_["model.surprise.weight"] = some;
  ASSERT_TRUE(Load().ok());
  EXPECT_NE(log_.find("model.surprise.weight"), std::string::npos) << log_;
  EXPECT_EQ(log_.find("rotary_emb"), std::string::npos) << log_;
}

TEST_F(ModelLoaderTest, MissingTensorsAreErrorsThatNameThem) {
  tensors_.erase("model.layers.2.mlp.up_proj.weight");
  const auto loaded = Load();
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, ErrorCode::kNotFound);
  EXPECT_NE(loaded.error().message.find("model.layers.2.mlp.up_proj.weight"), std::string::npos);
}

TEST_F(ModelLoaderTest, MisshapenTensorsAreErrorsThatNameBothShapes) {
  tensors_["model.layers.1.self_attn.k_proj.weight"] = tensors_.at("model.norm.weight");
  const auto loaded = Load();
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(loaded.error().message.find("[64]"), std::string::npos) << loaded.error().message;
  EXPECT_NE(loaded.error().message.find("[32, 64]"), std::string::npos) << loaded.error().message;
}

TEST_F(ModelLoaderTest, SuppressedTokensGetNoProbability) {
  std::ofstream(folder_ + "/generation_config.json") << R"({"suppress_tokens":[7,99,4000000]})";
  const auto loaded = Load();
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  KvPool pool({.budget_bytes = size_t{16} << 20});
  KvSequence sequence = ValueOrDie(
      KvSequence::Create(&pool, std::make_shared<const KvCacheSpec>(loaded->model->CacheSpec({}))));
  Workspace workspace;
  const std::vector<Token> tokens = {1, 2, 3};
  const SequenceRun run = {&sequence, tokens, 2};
  const ConstFloatRows logits = ValueOrDie(loaded->model->Forward(std::span(&run, 1), workspace));
  ASSERT_EQ(logits.rows, 2);
  for (int64_t row = 0; row < logits.rows; ++row) {
    for (int64_t token = 0; token < logits.cols; ++token) {
      EXPECT_EQ(std::isinf(logits.row(row)[token]), token == 7 || token == 99) << token;
    }
  }
}

// Names without ".weight", under a wrapper's prefix: the embedding and the head tell where a model
// is.
TEST_F(ModelLoaderTest, QuantizedEmbeddingsAndHeadsAreFoundUnderPrefixes) {
  Json config = ValueOrDie(Json::ParseFile(folder_ + "/config.json"));
  config.Set("quantization_config", Json::Object{{"quant_method", "awq"}});
  config.Set("tie_word_embeddings", false);
  ASSERT_TRUE(WriteFileAtomic(folder_ + "/config.json", config.Dump()).ok());
  const TensorView embedding = tensors_.at("model.embed_tokens.weight");
  const int64_t rows = embedding.shape[0];
  const int64_t columns = embedding.shape[1];
  const std::vector<std::byte> zeros(static_cast<size_t>(rows * columns));
  std::map<std::string, TensorView> nested;
  for (const auto& [name, tensor] : tensors_) {
    if (name.starts_with("model.layers.") || name == "model.norm.weight") {
      nested["language_model." + name] = tensor;
    }
  }
  for (const std::string module : {"language_model.model.embed_tokens", "language_model.lm_head"}) {
    nested[module + ".qweight"] = {DType::kI32, {columns, rows / 8}, zeros.data()};
    nested[module + ".qzeros"] = {DType::kI32, {columns / 32, rows / 8}, zeros.data()};
    nested[module + ".scales"] = {DType::kF16, {columns / 32, rows}, zeros.data()};
  }
  tensors_ = nested;
  const auto loaded = Load();
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded->model->vocab_size(), rows);
}

TEST_F(ModelLoaderTest, MadeUpWeightsNeedOnlyTheConfig) {
  std::filesystem::remove(folder_ + "/model.safetensors");
  EXPECT_FALSE(LoadModel(folder_, *backend_).ok());
  const auto random = MakeRandomModel(folder_, *backend_, WeightFormat::kQ8);
  ASSERT_TRUE(random.ok()) << random.error().message;
  EXPECT_EQ(random->model->vocab_size(), 256);
}

// Whose norms are called as others' are: none stands in for one that is missing.
TEST(ModelLoader, MissingNormsOfGlm4AreNamed) {
  const std::string folder = testing::TempDir() + "/kvasir_loader_glm4";
  for (const std::string name :
       {"post_self_attn_layernorm", "post_attention_layernorm", "post_mlp_layernorm"}) {
    std::filesystem::remove_all(folder);
    std::filesystem::copy(TinyModel::Folder("transformers_glm4_bf16"), folder);
    std::string bytes = ValueOrDie(ReadFile(folder + "/model.safetensors"));
    const size_t at = bytes.find("layers.1." + name);
    ASSERT_NE(at, std::string::npos);
    bytes[at + std::string("layers.1.").size()] = 'q';
    OrDie(WriteFileAtomic(folder + "/model.safetensors", bytes));
    const auto backend = ValueOrDie(MakeCpuBackend({.threads = 1}));
    const auto loaded = LoadModel(folder, *backend, {});
    ASSERT_FALSE(loaded.ok()) << name;
    EXPECT_EQ(loaded.error().code, ErrorCode::kNotFound);
    EXPECT_NE(loaded.error().message.find("layers.1." + name), std::string::npos)
        << loaded.error().message;
  }
}

}  // namespace
}  // namespace kvasir
