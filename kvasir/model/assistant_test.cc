// Gemma 4 assistants against recordings of transformers, and what is refused as a pair.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kvasir/kv/speculation.h"
#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

std::string AssistantFolder(const std::string& name) {
  return std::string(KVASIR_SOURCE_DIR) + "/testdata/assistants/" + name;
}

std::vector<Token> TokensOf(const Json& array) {
  std::vector<Token> tokens;
  for (const Json& token : array.as_array()) tokens.push_back(static_cast<Token>(token.as_int()));
  return tokens;
}

// As in the recordings; bf16 weights would have activations rounded, too.
constexpr WeightFormat kExact = WeightFormat::kF32;

class AssistantGoldenTest : public testing::TestWithParam<std::string> {
 protected:
  AssistantGoldenTest()
      : golden_(ValueOrDie(Json::ParseFile(AssistantFolder(GetParam()) + "/golden.json"))),
        target_({.folder = ValueOrDie(golden_.GetString("target")), .weights = kExact}),
        assistant_(
            ValueOrDie(LoadAssistant(AssistantFolder(GetParam()), target_.config(),
                                     target_.backend(), {.weight_format = kExact, .log = {}}))) {}

  // The target has read all known tokens but the last; what it leaves.
  void Read(KvSequence& cache, const std::vector<Token>& known, int64_t chunk) {
    size_t at = 0;
    while (at + 1 < known.size()) {
      const size_t count = std::min<size_t>(static_cast<size_t>(chunk), known.size() - 1 - at);
      const SequenceRun run = {&cache, std::span(known).subspan(at, count), 0, 1};
      ASSERT_TRUE(target_.model().Forward(std::span(&run, 1), target_.workspace()).ok());
      at += count;
    }
    const ConstFloatRows states = target_.workspace().HiddenStates();
    state_.assign(states.row(0), states.row(0) + states.cols);
  }

  // Holds a chain of drafts against its recording.
  void Expect(const KvSequence& cache, Token token, const Json& recorded) {
    const auto drafts = TokensOf(*recorded.Find("drafts"));
    const Json::Array& wanted = recorded.Find("logits")->as_array();
    const bool is_ordered = *golden_.GetBool("is_ordered");
    const double tolerance = *golden_.GetDouble("tolerance");
    std::vector<float> state = state_;
    for (size_t i = 0; i < drafts.size(); ++i) {
      const AssistantQuery query = {&cache, *recorded.GetInt("position"), token, state};
      const auto out = assistant_.model->Forward(target_.model(), std::span(&query, 1), workspace_);
      const float* const logits = out.logits.row(0);
      const auto vocabulary = static_cast<size_t>(out.logits.cols);
      int64_t looked = 0;
      double worst = 0;
      for (size_t id = 0; id < vocabulary; ++id) {
        // transformers fills in a number where it did not look.
        if (is_ordered && std::isinf(logits[id])) continue;
        ++looked;
        worst = std::max(worst, std::fabs(logits[id] - wanted[i * vocabulary + id].as_double()));
      }
      EXPECT_LE(worst, tolerance) << "draft " << i;
      EXPECT_EQ(looked, is_ordered ? 3 * 16 : static_cast<int64_t>(vocabulary));
      token = static_cast<Token>(std::max_element(logits, logits + vocabulary) - logits);
      ASSERT_EQ(token, drafts[i]) << "draft " << i;
      state.assign(out.states.row(0), out.states.row(0) + out.states.cols);
    }
  }

  const Json golden_;
  TinyModel target_;
  const LoadedAssistant assistant_;
  Workspace workspace_;
  std::vector<float> state_;
};

TEST_P(AssistantGoldenTest, DraftsAreThoseOfTransformers) {
  for (const Json& chain : golden_.Find("chains")->as_array()) {
    const auto tokens = TokensOf(*chain.Find("tokens"));
    for (const int64_t chunk : {1 << 20, 7, 1}) {
      SCOPED_TRACE(testing::Message() << tokens.size() << " tokens in chunks of " << chunk);
      KvSequence cache = target_.NewSequence();
      Read(cache, tokens, chunk);
      Expect(cache, tokens.back(), *chain.Find("next"));
      Expect(cache, tokens.back(), *chain.Find("read"));
    }
  }
}

// What was refused and rolled back leaves rows behind that nobody sees.
TEST_P(AssistantGoldenTest, RowsBehindTheEndAreNotSeen) {
  const Json& chain = golden_.Find("chains")->as_array()[1];
  const auto tokens = TokensOf(*chain.Find("tokens"));
  KvSequence cache = target_.NewSequence();
  Read(cache, tokens, 1 << 20);
  KvSequence* const all[] = {&cache};
  Speculation speculation = ValueOrDie(Speculation::Begin(all));
  const auto wrong = RandomTokens(5, target_.model().vocab_size(), 3);
  const SequenceRun run = {&cache, wrong, 0};
  ASSERT_TRUE(target_.model().Forward(std::span(&run, 1), target_.workspace()).ok());
  const int64_t kept[] = {0};
  ASSERT_TRUE(speculation.Commit(kept).ok());
  Expect(cache, tokens.back(), *chain.Find("next"));
}

TEST_P(AssistantGoldenTest, ARowDoesNotDependOnItsNeighbours) {
  std::vector<KvSequence> caches;
  std::vector<std::vector<float>> states;
  std::vector<AssistantQuery> queries;
  const int64_t vocabulary = target_.model().vocab_size();
  for (uint64_t i = 0; i < 5; ++i) {
    caches.push_back(target_.NewSequence());
    Read(caches.back(), RandomTokens(3 + 31 * static_cast<int64_t>(i), vocabulary, i), 1 << 20);
    states.push_back(state_);
  }
  for (size_t i = 0; i < caches.size(); ++i) {
    queries.push_back({&caches[i], caches[i].position(), static_cast<Token>(i), states[i]});
  }
  const auto together = assistant_.model->Forward(target_.model(), queries, workspace_);
  for (size_t i = 0; i < queries.size(); ++i) {
    Workspace alone_workspace;
    const auto alone = assistant_.model->Forward(target_.model(), std::span(queries).subspan(i, 1),
                                                 alone_workspace);
    const auto row = static_cast<int64_t>(i);
    EXPECT_TRUE(std::equal(alone.logits.row(0), alone.logits.row(0) + vocabulary,
                           together.logits.row(row)));
    EXPECT_TRUE(std::equal(alone.states.row(0), alone.states.row(0) + alone.states.cols,
                           together.states.row(row)));
  }
}

INSTANTIATE_TEST_SUITE_P(Recorded, AssistantGoldenTest,
                         testing::Values("gemma4_shared_ordered", "gemma4_one_projection_plain"),
                         [](const auto& info) { return info.param; });

TEST(AssistantTest, WhatDiffersFromTheTargetIsNamed) {
  const auto config = ValueOrDie(AssistantConfig::Load(AssistantFolder("gemma4_shared_ordered")));
  const TinyModel shared({.folder = "transformers_gemma4_shared_bf16"});
  ASSERT_TRUE(AssistantModel::CheckTarget(config, shared.config()).ok());
  const auto refused = [&](auto change, const std::string& part) {
    ModelConfig target = shared.config();
    change(target);
    const Status status = AssistantModel::CheckTarget(config, target);
    ASSERT_FALSE(status.ok()) << part;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
  };
  refused([](ModelConfig& c) { c.hidden_size = 64; }, "backbone_hidden_size is 48, the model's 64");
  refused([](ModelConfig& c) { c.vocab_size = 255; }, "vocabulary is 256, the model's 255");
  refused([](ModelConfig& c) { c.global_head_dim = 64; }, "head size of full layers is 32");
  refused([](ModelConfig& c) { c.num_key_value_heads = 2; }, "heads of sliding layers is 1");
  refused([](ModelConfig& c) { c.sliding_window = 16; }, "sliding_window is 12, the model's 16");
  refused([](ModelConfig& c) { c.layer_kinds.assign(7, LayerKind::kFull); },
          "it has a sliding attention layer, and the model has none");
}

TEST(AssistantTest, ConfigsThatCannotBeAreRefused) {
  const Json good =
      ValueOrDie(Json::ParseFile(AssistantFolder("gemma4_shared_ordered") + "/config.json"));
  ASSERT_TRUE(AssistantConfig::Parse(good).ok());
  const auto refused = [&](const char* field, Json value, bool is_inner, const std::string& part) {
    Json config = good;
    if (is_inner) {
      Json inner = *config.Find("text_config");
      inner.Set(field, std::move(value));
      config.Set("text_config", std::move(inner));
    } else {
      config.Set(field, std::move(value));
    }
    const auto parsed = AssistantConfig::Parse(config);
    ASSERT_FALSE(parsed.ok()) << field;
    EXPECT_NE(parsed.error().message.find(part), std::string::npos) << parsed.error().message;
  };
  refused("num_centroids", 7, false, "must divide the vocabulary of 256");
  refused("num_centroids", 0, false, "num_centroids");
  refused("centroid_intermediate_top_k", 17, false, "centroid_intermediate_top_k");
  refused("backbone_hidden_size", -1, false, "backbone_hidden_size");
  refused("text_config", 3, false, "text_config");
  refused("architectures", Json::Array{"LlamaForCausalLM"}, false, "no assistant");
  refused("num_kv_shared_layers", 2, true, "");
  refused("hidden_size_per_layer_input", 8, true, "");
}

// An assistant is no model, and says whose it is.
TEST(AssistantTest, ItDoesNotRunAlone) {
  const auto alone = ModelConfig::Load(AssistantFolder("gemma4_shared_ordered"));
  ASSERT_FALSE(alone.ok());
  EXPECT_EQ(alone.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(alone.error().message.find("as its draft"), std::string::npos);
}

}  // namespace
}  // namespace kvasir
