#include "kvasir/engine/cached_sequence_file.h"

#include <gtest/gtest.h>

#include "kvasir/engine/generator.h"
#include "kvasir/formats/test_files.h"
#include "kvasir/kv/kv_policy_flags.h"
#include "kvasir/kv/snapshot_file.h"
#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

std::unique_ptr<ModelBundle> Load(const std::string& folder, const KvPolicyFlags& flags = {}) {
  BundleOptions options;
  options.kv = ValueOrDie(KvPolicy::FromFlags(flags));
  options.kv_budget_bytes = size_t{64} << 20;
  return ValueOrDie(ModelBundle::Load(TinyModel::Folder(folder), options));
}

Error LoadError(ModelBundle& bundle, const std::string& path) {
  const auto loaded = LoadCachedSequence(bundle, path);
  KVASIR_CHECK(!loaded.ok());
  EXPECT_NE(loaded.error().message.find(path), std::string::npos) << loaded.error().message;
  EXPECT_EQ(bundle.pool().Stats().used_bytes, 0u) << "a refused file holds no block";
  return loaded.error();
}

class CachedSequenceFileTest : public testing::Test {
 protected:
  // A prompt and its answer, past the windows of a model that has some.
  std::string Save(ModelBundle& bundle, const std::vector<Token>& tokens, size_t prompt_tokens) {
    Workspace workspace;
    CachedSequence sequence = ValueOrDie(bundle.NewSequence());
    ValueOrDie(sequence.Evaluate(std::span(tokens).first(prompt_tokens), workspace));
    sequence.AddRestorePoint();
    ValueOrDie(sequence.Evaluate(std::span(tokens).subspan(prompt_tokens), workspace));
    const std::string path = scratch_.File("cache.kv");
    OrDie(SaveCachedSequence(sequence, bundle, path, {{"note", "x"}, {"model", "overwritten"}}));
    return path;
  }

  ScratchFolder scratch_;
};

TEST_F(CachedSequenceFileTest, TheSamePromptAgainIsOneToken) {
  KvPolicyFlags budget;
  budget.compact_kv_budget = 128;
  budget.kv_compact_interval = 64;
  for (const KvPolicyFlags& flags : {KvPolicyFlags(), budget}) {
    const auto bundle = Load("public_gemma3_f32", flags);
    const auto tokens = RandomTokens(300, 256, 1);
    const std::string path = Save(*bundle, tokens, 180);
    // Another process: nothing is left but the file.
    const auto again = Load("public_gemma3_f32", flags);
    LoadedCachedSequence loaded = ValueOrDie(LoadCachedSequence(*again, path));
    EXPECT_EQ(loaded.metadata.at("note"), "x");
    EXPECT_EQ(loaded.metadata.at("model"), "public_gemma3_f32");
    EXPECT_EQ(loaded.sequence.tokens(), tokens);
    const auto prompt = std::span(tokens).first(180);
    ASSERT_EQ(loaded.sequence.Rewind(prompt), 179);
    Workspace workspace;
    const auto logits = ValueOrDie(loaded.sequence.Evaluate(prompt.subspan(179), workspace));
    const std::vector<float> warm(logits.begin(), logits.end());
    CachedSequence fresh = ValueOrDie(bundle->NewSequence());
    const auto cold = ValueOrDie(fresh.Evaluate(prompt, workspace));
    EXPECT_EQ(warm, std::vector<float>(cold.begin(), cold.end()));
  }
}

TEST_F(CachedSequenceFileTest, AnotherModelOrCacheIsRefusedWithTheDifference) {
  const auto bundle = Load("public_qwen3_f32");
  const std::string path = Save(*bundle, RandomTokens(70, 256, 1), 60);
  const auto other = Load("public_llama_f32");
  const Error model = LoadError(*other, path);
  EXPECT_EQ(model.code, ErrorCode::kInvalidArgument);
  EXPECT_NE(model.message.find("'public_qwen3_f32'"), std::string::npos) << model.message;
  EXPECT_NE(model.message.find("'public_llama_f32'"), std::string::npos) << model.message;
  KvPolicyFlags f32;
  f32.kv_dtype = "f32";
  const auto wide = Load("public_qwen3_f32", f32);
  const Error cache = LoadError(*wide, path);
  EXPECT_EQ(cache.code, ErrorCode::kInvalidArgument);
  EXPECT_NE(cache.message.find("'f16; "), std::string::npos) << cache.message;
  EXPECT_NE(cache.message.find("'f32; "), std::string::npos) << cache.message;
}

TEST_F(CachedSequenceFileTest, OtherFilesAreRefused) {
  const auto bundle = Load("public_qwen3_f32");
  const std::string path = Save(*bundle, RandomTokens(70, 256, 1), 60);
  const std::string whole = *ReadFile(path);
  EXPECT_EQ(LoadError(*bundle, scratch_.File("missing.kv")).code, ErrorCode::kNotFound);
  EXPECT_EQ(LoadError(*bundle, scratch_.Write("cut.kv", whole.substr(0, whole.size() / 2))).code,
            ErrorCode::kCorrupt);
  // A sound file of somebody else: no model, or not one sequence from its first token on.
  const KvSnapshotFile file = ValueOrDie(LoadSnapshots(&bundle->pool(), path));
  const std::string odd = scratch_.File("odd.kv");
  OrDie(SaveSnapshots({file.sequences, {}}, odd));
  const auto again = Load("public_qwen3_f32");
  EXPECT_EQ(LoadError(*again, odd).code, ErrorCode::kInvalidArgument);
  auto sequences = file.sequences;
  sequences[0].tokens.clear();
  OrDie(SaveSnapshots({sequences, file.metadata}, odd));
  EXPECT_EQ(LoadError(*again, odd).code, ErrorCode::kInvalidArgument);
  std::swap(sequences[0], sequences[1]);
  OrDie(SaveSnapshots({sequences, file.metadata}, odd));
  EXPECT_EQ(LoadError(*again, odd).code, ErrorCode::kInvalidArgument);
  for (const Token token : {-1, 256}) {
    sequences = file.sequences;
    sequences[0].tokens[30] = token;
    OrDie(SaveSnapshots({sequences, file.metadata}, odd));
    const Error error = LoadError(*again, odd);
    EXPECT_EQ(error.code, ErrorCode::kCorrupt);
    EXPECT_NE(error.message.find("outside the vocabulary"), std::string::npos) << error.message;
  }
}

TEST_F(CachedSequenceFileTest, AnEmptySequenceComesBackEmpty) {
  const auto bundle = Load("public_qwen3_f32");
  const std::string path = scratch_.File("empty.kv");
  OrDie(SaveCachedSequence(ValueOrDie(bundle->NewSequence()), *bundle, path));
  LoadedCachedSequence loaded = ValueOrDie(LoadCachedSequence(*bundle, path));
  EXPECT_EQ(loaded.sequence.position(), 0);
  Workspace workspace;
  EXPECT_TRUE(loaded.sequence.Evaluate(RandomTokens(5, 256, 1), workspace).ok());
}

}  // namespace
}  // namespace kvasir
