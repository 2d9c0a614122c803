#include "kvasir/engine/prefix_cache_file.h"

#include <gtest/gtest.h>

#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/engine/engine.h"
#include "kvasir/formats/test_files.h"
#include "kvasir/kv/kv_policy_flags.h"
#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

using Tokens = std::vector<Token>;

// A model with a way to store its cache.
struct Setting {
  const char* name;
  const char* folder;
  KvPolicyFlags flags;
};

void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }

std::vector<Setting> Settings() {
  KvPolicyFlags packed;
  packed.kv_bits = "4";
  KvPolicyFlags budget;
  budget.compact_kv_budget = 320;  // rows go while the answer is made
  budget.kv_compact_interval = 64;
  return {{"full", "public_qwen3_f32", {}},
          {"windows", "public_gemma3_f32", {}},
          {"windows_packed", "models/kvasir-demo", packed},
          {"windows_budget", "public_gemma3_f32", budget},
          {"states", "transformers_qwen3_5_bf16", {}}};
}

// An engine over a freshly loaded model: what a restarted server has.
class Process {
 public:
  explicit Process(const Setting& setting) {
    BundleOptions options;
    options.kv = ValueOrDie(KvPolicy::FromFlags(setting.flags));
    options.kv_budget_bytes = size_t{64} << 20;
    bundle_ = ValueOrDie(ModelBundle::Load(TinyModel::Folder(setting.folder), options));
    engine_ = ValueOrDie(Engine::Create(EngineParts::Of(*bundle_)));
  }

  ModelBundle& bundle() { return *bundle_; }
  PrefixTree& tree() { return engine_->prefix_tree(); }
  GenerationResult Answer(const Tokens& prompt) {
    EngineRequest request;
    request.prompt = prompt;
    request.max_tokens = 40;
    EngineResult result;
    EngineCallbacks callbacks;
    callbacks.on_finish = [&](EngineResult finished) { result = std::move(finished); };
    OrDie(engine_->Submit(request, std::move(callbacks)).status());
    while (engine_->Step()) {
    }
    OrDie(result.status);
    return result.answers.at(0);
  }

 private:
  std::unique_ptr<ModelBundle> bundle_;
  std::unique_ptr<Engine> engine_;
};

class PrefixCacheFileTest : public testing::TestWithParam<Setting> {
 protected:
  // Longer than any window, so that a hit in the middle needs a restore point.
  const Tokens prompt_ = RandomTokens(300, 256, 1);
  Tokens Branch() const {
    Tokens branch(prompt_.begin(), prompt_.begin() + 200);
    const Tokens other = RandomTokens(60, 256, 2);
    branch.insert(branch.end(), other.begin(), other.end());
    return branch;
  }
  ScratchFolder scratch_;
  const std::string path_ = scratch_.File("prefixes.kv");
};

// Whatever the first process finds in its tree the second finds in the file, with the same bits.
TEST_P(PrefixCacheFileTest, AnotherProcessFindsWhatThisOneFinds) {
  Process before(GetParam());
  const Tokens first = before.Answer(prompt_).tokens;
  (void)before.Answer(Branch());
  const auto saved =
      ValueOrDie(SavePrefixCache(before.tree(), before.bundle(), path_, size_t{1} << 30));
  EXPECT_GT(saved.tokens, 0);

  Tokens follow_up = prompt_;
  follow_up.insert(follow_up.end(), first.begin(), first.end());
  follow_up.push_back(7);
  Tokens cut(prompt_.begin(), prompt_.begin() + 250);
  for (const Tokens& prompt : {prompt_, follow_up, Branch(), cut}) {
    Process after(GetParam());
    const auto loaded = ValueOrDie(LoadPrefixCache(after.tree(), after.bundle(), path_));
    EXPECT_EQ(loaded.tokens, saved.tokens);
    const int64_t found =
        ValueOrDie(before.tree().Find(0, prompt, static_cast<int64_t>(prompt.size()) - 1)).tokens;
    const GenerationResult answer = after.Answer(prompt);
    EXPECT_EQ(answer.stats.cached_tokens, found);
    Process cold(GetParam());
    EXPECT_EQ(answer.tokens, cold.Answer(prompt).tokens);
  }
}

TEST_P(PrefixCacheFileTest, WhatDoesNotFitStaysOut) {
  Process before(GetParam());
  (void)before.Answer(prompt_);
  const auto all =
      ValueOrDie(SavePrefixCache(before.tree(), before.bundle(), path_, size_t{1} << 30));
  const auto part =
      ValueOrDie(SavePrefixCache(before.tree(), before.bundle(), path_, all.bytes - 1));
  EXPECT_LT(part.tokens, all.tokens);
  EXPECT_LT(part.bytes, all.bytes);
}

INSTANTIATE_TEST_SUITE_P(Settings, PrefixCacheFileTest, testing::ValuesIn(Settings()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kvasir
