// Drafts of the bundled pair: what is accepted as a pair and what is refused, and why.
#include "kvasir/engine/draft_source.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>

#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

std::string Folder(const std::string& name) { return std::string(KVASIR_SOURCE_DIR) + "/" + name; }

const BundleOptions kSmall = {.kv_budget_bytes = size_t{16} << 20};

std::unique_ptr<ModelBundle> Demo() {
  return ValueOrDie(ModelBundle::Load(Folder("models/kvasir-demo"), kSmall));
}

TEST(DraftSourceTest, TheBundledPairFits) {
  const auto target = Demo();
  const auto source = ValueOrDie(
      DraftSource::Load({DraftKind::kModel, Folder("models/kvasir-demo-draft"), kSmall}, *target));
  EXPECT_EQ(source->NewDrafter(nullptr)->kind(), "model");
  EXPECT_NE(source->Describe().find("kvasir-demo-draft"), std::string::npos);
}

// Of one number of bytes the model leaves an eighth, or what it is told.
TEST(DraftSourceTest, TheModelLeavesTheDraftItsPart) {
  constexpr size_t kTotal = size_t{16} << 20;
  for (const int64_t step_tokens : {0, 64}) {
    for (const auto& [asked, left] : {std::pair{std::optional<size_t>(), size_t{0}},
                                      std::pair{std::optional<size_t>(0), kTotal / 8},
                                      std::pair{std::optional<size_t>(kTotal / 4), kTotal / 4}}) {
      BundleOptions options = kSmall;
      options.engine_step_tokens = step_tokens;
      options.draft_bytes = asked;
      const CacheBudget budget =
          ValueOrDie(ModelBundle::Load(Folder("models/kvasir-demo"), options))->budget();
      EXPECT_EQ(budget.draft_bytes, left);
      EXPECT_EQ(budget.block_bytes + budget.scratch_bytes + budget.index_bytes, kTotal - left);
    }
  }
  BundleOptions options = kSmall;
  options.draft_bytes = kTotal;
  const auto nothing = ModelBundle::Load(Folder("models/kvasir-demo"), options);
  ASSERT_FALSE(nothing.ok());
  EXPECT_NE(nothing.error().message.find("--draft-cache-bytes"), std::string::npos);
}

TEST(DraftSourceTest, OthersNeedNoModel) {
  const auto target = Demo();
  EXPECT_EQ(ValueOrDie(DraftSource::Load({}, *target))->NewDrafter(nullptr), nullptr);
  const auto ngrams = ValueOrDie(DraftSource::Load({DraftKind::kNgram, "", kSmall}, *target));
  EXPECT_EQ(ngrams->NewDrafter(nullptr)->kind(), "ngram");
}

TEST(DraftSourceTest, SaysWhoDrafts) {
  EXPECT_EQ(DescribeDrafts(DraftKind::kModel, "small"), "small");
  EXPECT_EQ(DescribeDrafts(DraftKind::kNgram, ""), "what was said before");
  EXPECT_EQ(DescribeDrafts(DraftKind::kNone, ""), "none");
}

TEST(DraftSourceTest, AnAssistantIsKnownByItsConfig) {
  const auto target = ValueOrDie(
      ModelBundle::Load(Folder("testdata/models/transformers_gemma4_shared_bf16"), kSmall));
  const std::string assistant = Folder("testdata/assistants/gemma4_shared_ordered");
  for (const DraftKind kind : {DraftKind::kModel, DraftKind::kMtp}) {
    const auto source = ValueOrDie(DraftSource::Load({kind, assistant, kSmall}, *target));
    EXPECT_EQ(source->kind(), DraftKind::kMtp);
    EXPECT_EQ(source->NewDrafter(nullptr)->kind(), "mtp");
    EXPECT_NE(source->Describe().find("gemma4_shared_ordered"), std::string::npos);
  }
  const auto unfit = DraftSource::Load({DraftKind::kMtp, assistant, kSmall}, *Demo());
  ASSERT_FALSE(unfit.ok());
  EXPECT_NE(unfit.error().message.find("backbone_hidden_size"), std::string::npos);
  const auto none =
      DraftSource::Load({DraftKind::kMtp, Folder("models/kvasir-demo-draft"), kSmall}, *Demo());
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.error().message.find("names no assistant"), std::string::npos);
}

TEST(DraftSourceTest, AModelsOwnLayerNeedsNoOther) {
  for (const char* const name :
       {"testdata/models/transformers_qwen3_5_wrapped_bf16", "testdata/gguf/qwen35moe_bf16.gguf",
        "testdata/models/transformers_glm4_moe_lite_bf16"}) {
    const auto target = ValueOrDie(ModelBundle::Load(Folder(name), kSmall));
    const auto source = ValueOrDie(DraftSource::Load({DraftKind::kMtp, "", kSmall}, *target));
    EXPECT_EQ(source->NewDrafter(nullptr)->kind(), "pairs");
    EXPECT_NE(source->Describe().find("mtp"), std::string::npos);
    BundleOptions tiny = kSmall;
    tiny.kv_budget_bytes = 100;
    const auto crowded = DraftSource::Load({DraftKind::kMtp, "", tiny}, *target);
    ASSERT_FALSE(crowded.ok());
    EXPECT_NE(crowded.error().message.find("--draft-cache-bytes"), std::string::npos);
  }
  BundleOptions random = kSmall;
  random.random_weights = true;
  const auto made_up =
      ValueOrDie(ModelBundle::Load(Folder("testdata/models/transformers_qwen3_5_bf16"), random));
  EXPECT_TRUE(DraftSource::Load({DraftKind::kMtp, "", random}, *made_up).ok());
  const auto none = DraftSource::Load({DraftKind::kMtp, "", kSmall}, *Demo());
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, ErrorCode::kInvalidArgument);
}

TEST(DraftSourceTest, WhatIsMissingIsSaid) {
  const auto target = Demo();
  const auto nothing = DraftSource::Load({DraftKind::kModel, "", kSmall}, *target);
  EXPECT_EQ(nothing.error().code, ErrorCode::kInvalidArgument);
  const auto nowhere = DraftSource::Load({DraftKind::kModel, Folder("no-such"), kSmall}, *target);
  EXPECT_NE(nowhere.error().message.find("no-such"), std::string::npos);
  const auto mute = DraftSource::Load(
      {DraftKind::kModel, Folder("testdata/models/public_qwen3_f32"), kSmall}, *target);
  ASSERT_FALSE(mute.ok());
  EXPECT_NE(mute.error().message.find("tokenizer.json"), std::string::npos) << mute.error().message;
}

// A tokenizer of five words, made from text as tokenizer.json has it.
std::unique_ptr<const Tokenizer> Words(const std::string& fourth, bool has_fifth = true) {
  const std::string json = R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"c":2,")" + fourth +
                           R"(":3)" + (has_fifth ? R"(,"e":4)" : "") + R"(},"merges":[]}})";
  return ValueOrDie(Tokenizer::FromJson(ValueOrDie(Json::Parse(json))));
}

TEST(DraftSourceTest, TheFirstTokenThatDiffersIsNamed) {
  EXPECT_TRUE(CheckSameVocabulary(*Words("d"), *Words("d")).ok());
  const Status other = CheckSameVocabulary(*Words("d"), *Words("x"));
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message.find("token 3 is 'd' in the model and 'x' in the draft"),
            std::string::npos)
      << other.error().message;
  const Status shorter = CheckSameVocabulary(*Words("d"), *Words("d", false));
  ASSERT_FALSE(shorter.ok());
  EXPECT_NE(shorter.error().message.find("token 4"), std::string::npos);
}

TEST(DraftSourceTest, KindsHaveNames) {
  EXPECT_EQ(*DraftKindFromName("ngram"), DraftKind::kNgram);
  EXPECT_FALSE(DraftKindFromName("crystal-ball").ok());
}

}  // namespace
}  // namespace kvasir
