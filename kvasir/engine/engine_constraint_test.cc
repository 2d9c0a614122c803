// Answers held to grammars, on the bundled model: valid, ended in time, and the same bits in any
// batch, under preemption and alone.
#include "kvasir/engine/grammar_constraint.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "kvasir/engine/engine.h"
#include "kvasir/engine/generator.h"
#include "kvasir/grammar/grammar.h"
#include "kvasir/speculative/ngram_drafter.h"
#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

constexpr std::string_view kPerson = R"({
  "type": "object", "additionalProperties": false, "required": ["name", "age", "tags"],
  "properties": {"name": {"type": "string", "minLength": 2, "maxLength": 12},
                 "age": {"type": "integer", "minimum": 0, "maximum": 120},
                 "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3}}})";

class EngineConstraintTest : public testing::Test {
 protected:
  EngineConstraintTest() { Load(size_t{64} << 20); }

  void Load(size_t budget_bytes) {
    BundleOptions options;
    options.kv_budget_bytes = budget_bytes;
    bundle_ = ValueOrDie(
        ModelBundle::Load(std::string(KVASIR_SOURCE_DIR) + "/models/kvasir-demo", options));
    vocabulary_ = std::make_shared<const GrammarVocabulary>(
        GrammarVocabulary::FromTokenizer(*bundle_->tokenizer(), bundle_->stop_tokens()));
  }
  std::shared_ptr<const TokenConstraintSource> Schema(std::string_view schema) {
    return std::make_shared<GrammarConstraintSource>(
        ValueOrDie(Grammar::FromJsonSchema(ValueOrDie(Json::Parse(schema)))), vocabulary_);
  }
  std::shared_ptr<const TokenConstraintSource> Gbnf(std::string_view text) {
    return std::make_shared<GrammarConstraintSource>(ValueOrDie(Grammar::FromGbnf(text)),
                                                     vocabulary_);
  }
  EngineRequest Chat(const std::string& text) {
    EngineRequest request;
    request.prompt = ValueOrDie(
        bundle_->ChatTokens(Json::Array{Json(Json::Object{{"role", "user"}, {"content", text}})}));
    request.max_tokens = 120;
    return request;
  }
  GenerationResult Alone(const EngineRequest& request) {
    GenerationRequest alone;
    alone.prompt = request.prompt;
    alone.max_tokens = request.max_tokens;
    alone.sampling = request.sampling;
    alone.ignore_stop_tokens = request.ignore_stop_tokens;
    alone.constraint = request.constraint;
    CachedSequence sequence = ValueOrDie(bundle_->NewSequence());
    return ValueOrDie(Generator(bundle_.get()).Generate(alone, sequence));
  }
  std::vector<EngineResult> Together(const std::vector<EngineRequest>& requests) {
    const auto engine = ValueOrDie(Engine::Create(EngineParts::Of(*bundle_)));
    std::vector<EngineResult> results(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      EngineCallbacks callbacks;
      callbacks.on_finish = [&, i](EngineResult result) { results[i] = std::move(result); };
      (void)ValueOrDie(engine->Submit(requests[i], callbacks));
      engine->Step();
    }
    while (engine->Step()) {
    }
    preemptions_ = engine->Stats().preemptions;
    return results;
  }

  std::unique_ptr<ModelBundle> bundle_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  int64_t preemptions_ = 0;
};

TEST_F(EngineConstraintTest, AnswersAreValidAndThoseOfTheRequestAlone) {
  std::vector<EngineRequest> requests(5, Chat("Who are you?"));
  requests[0].constraint = Schema(kPerson);
  requests[1].constraint = requests[0].constraint;
  requests[1].sampling = {.temperature = 1.5, .seed = 11};
  requests[2] = Chat("What is a cache?");  // free
  requests[3].constraint = Gbnf("root ::= (\"yes\" | \"no\") \", \" [0-9]{3}");
  requests[3].sampling = {.temperature = 1.0, .seed = 4};
  requests[4].constraint = requests[0].constraint;
  requests[4].sampling = {.temperature = 1.0, .seed = 5};
  requests[4].sampling.mirostat = {.version = 2, .tau = 3, .eta = 0.1};

  const std::vector<EngineResult> results = Together(requests);
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(results[i].status.ok()) << results[i].status.error().message;
    const GenerationResult& answer = results[i].answers[0];
    const GenerationResult wanted = Alone(requests[i]);
    EXPECT_EQ(answer.tokens, wanted.tokens) << i;
    EXPECT_EQ(answer.text, wanted.text) << i;
    EXPECT_EQ(answer.finish, wanted.finish) << i;
    if (i == 2) continue;
    EXPECT_EQ(answer.finish, FinishReason::kStop) << answer.text;
    if (i == 3) continue;
    const Json person = ValueOrDie(Json::Parse(answer.text));
    EXPECT_GE(ValueOrDie(person.GetString("name")).size(), 2u);
    EXPECT_LE(ValueOrDie(person.GetInt("age")), 120);
  }
  const std::string& picked = results[3].answers[0].text;
  EXPECT_EQ(picked.size(), picked.starts_with("yes") ? 8u : 7u) << picked;
}

TEST_F(EngineConstraintTest, AnswerEndsWhenNothingElseMayCome) {
  EngineRequest request = Chat("Who are you?");
  request.constraint = Gbnf("root ::= \"fixed\"");
  request.ignore_stop_tokens = true;
  request.answers = 3;
  const EngineResult result = std::move(Together({request})[0]);
  ASSERT_EQ(result.answers.size(), 3u);
  for (const GenerationResult& answer : result.answers) {
    EXPECT_EQ(answer.text, "fixed");
    EXPECT_EQ(answer.finish, FinishReason::kStop);
  }
}

TEST_F(EngineConstraintTest, PreemptionKeepsThePlaceInTheGrammar) {
  std::vector<EngineRequest> requests;
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    requests.push_back(Chat("Tell me about caches, number " + std::to_string(seed)));
    requests.back().sampling = {.temperature = 1.0, .seed = seed};
    requests.back().constraint = Schema(
        R"({"type": "array", "items": {"type": "integer"}, "minItems": 60, "maxItems": 60})");
    requests.back().max_tokens = 150;
  }
  std::vector<GenerationResult> wanted;
  for (const EngineRequest& request : requests) wanted.push_back(Alone(request));
  // Room for the longest of them, not for two.
  const auto tokens = static_cast<int64_t>(requests[0].prompt.size()) + 160;
  Load(bundle_->cache_spec()->BytesAt(tokens) * 3 / 2);
  const std::vector<EngineResult> results = Together(requests);
  EXPECT_GT(preemptions_, 0);
  for (size_t i = 0; i < requests.size(); ++i) {
    ASSERT_TRUE(results[i].status.ok()) << results[i].status.error().message;
    EXPECT_EQ(results[i].answers[0].tokens, wanted[i].tokens) << i;
  }
}

TEST_F(EngineConstraintTest, GrammarThatNoTokenCanFollowEndsItsRequestOnly) {
  // A vocabulary in which nothing begins with 'f'.
  std::vector<std::string> bytes(static_cast<size_t>(bundle_->tokenizer()->vocab_size()));
  bytes[5] = "n";
  bytes[6] = "o";
  const auto poor =
      std::make_shared<const GrammarVocabulary>(std::move(bytes), bundle_->stop_tokens());
  std::vector<EngineRequest> requests(2, Chat("Who are you?"));
  requests[0].constraint = std::make_shared<GrammarConstraintSource>(
      ValueOrDie(Grammar::FromGbnf("root ::= \"nof\"")), poor);
  requests[0].answers = 2;
  const std::vector<EngineResult> results = Together(requests);
  ASSERT_FALSE(results[0].status.ok());
  EXPECT_EQ(results[0].status.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(results[0].answers.size(), 2u);
  EXPECT_TRUE(results[1].status.ok());
  EXPECT_EQ(results[1].answers[0].tokens, Alone(requests[1]).tokens);
}

TEST_F(EngineConstraintTest, RollbackReturnsToTheSameMask) {
  const auto source = Schema(kPerson);
  const auto constraint = source->Begin();
  const std::vector<Token> draft =
      bundle_->tokenizer()->Encode("{\"name\": \"Ab\"", {.add_special = false});
  const auto mask = [&] {
    std::vector<float> logits(static_cast<size_t>(bundle_->sampleable_tokens()), 1.0f);
    constraint->Mask(logits);
    return logits;
  };
  std::vector<std::vector<float>> masks = {mask()};
  for (const Token token : draft) {
    ASSERT_TRUE(constraint->Accept(token));
    masks.push_back(mask());
  }
  for (size_t left = draft.size(); left > 0; --left) {
    EXPECT_EQ(mask(), masks[left]);
    constraint->Rollback(1);
  }
  EXPECT_EQ(mask(), masks[0]);
  EXPECT_FALSE(constraint->Accept(draft.back()));
  EXPECT_EQ(mask(), masks[0]);
}

// Free text, then the grammar: whatever the cut between tokens.
class FreeTextTest : public testing::Test {
 protected:
  // Token i is bytes[i]; 0 ends.
  std::unique_ptr<GrammarConstraintSource> Source(std::vector<FreeText> before) {
    const std::vector<std::string> bytes = {"",  "a",  "<c>", "<",   "c", ">",
                                            "x", ">x", "y",   "<t>", ">z"};
    const std::vector<Token> ends = {0};
    vocabulary_size_ = bytes.size();
    return std::make_unique<GrammarConstraintSource>(
        std::make_shared<GrammarMasks>(ValueOrDie(Grammar::FromGbnf("root ::= \"x\" \"y\"?")),
                                       std::make_shared<const GrammarVocabulary>(bytes, ends)),
        std::move(before));
  }
  std::vector<Token> Allowed(TokenConstraint& constraint) const {
    std::vector<float> logits(vocabulary_size_, 0.0f);
    constraint.Mask(logits);
    std::vector<Token> tokens;
    for (size_t i = 0; i < logits.size(); ++i) {
      if (logits[i] == 0.0f) tokens.push_back(static_cast<Token>(i));
    }
    return tokens;
  }
  static void Take(TokenConstraint& constraint, const std::vector<Token>& tokens) {
    for (const Token token : tokens) ASSERT_TRUE(constraint.Accept(token)) << token;
  }

  size_t vocabulary_size_ = 0;
};

TEST_F(FreeTextTest, TheGrammarBeginsBehindTheMarker) {
  const auto source = Source({{.until = "<c>"}});
  for (const std::vector<Token>& marker :
       std::vector<std::vector<Token>>{{2}, {3, 4, 5}, {1, 3, 3, 4, 5}, {4, 3, 4, 3, 4, 5}}) {
    const auto constraint = source->Begin();
    EXPECT_EQ(Allowed(*constraint), (std::vector<Token>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}));
    EXPECT_FALSE(constraint->Accept(0));
    Take(*constraint, marker);
    EXPECT_EQ(Allowed(*constraint), std::vector<Token>{6});
    EXPECT_FALSE(constraint->IsComplete());
    Take(*constraint, {6});
    EXPECT_EQ(Allowed(*constraint), (std::vector<Token>{0, 8}));
    Take(*constraint, {8});
    EXPECT_TRUE(constraint->IsComplete());
    constraint->Rollback(2);
    EXPECT_EQ(Allowed(*constraint), std::vector<Token>{6});
    constraint->Rollback(marker.size());
    EXPECT_EQ(Allowed(*constraint).size(), 10u);
    Take(*constraint, {2, 6, 8});
    EXPECT_TRUE(constraint->IsComplete());
  }
}

TEST_F(FreeTextTest, ATokenMayEndTheMarkerAndBeginTheText) {
  const auto source = Source({{.until = "<c>", .may_end = true}});
  const auto constraint = source->Begin();
  EXPECT_EQ(Allowed(*constraint).size(), vocabulary_size_);
  Take(*constraint, {3, 4, 7});  // "<" "c" ">x"
  EXPECT_EQ(Allowed(*constraint), (std::vector<Token>{0, 8}));
  constraint->Rollback(1);
  Take(*constraint, {10});  // ">z", which the grammar forbids: held to nothing
  EXPECT_EQ(Allowed(*constraint).size(), vocabulary_size_);
  EXPECT_FALSE(constraint->IsComplete());
  Take(*constraint, {0});
  EXPECT_TRUE(constraint->IsComplete());
}

TEST_F(FreeTextTest, AnOpenerMayComeFirst) {
  const auto source = Source({{.until = "<c>", .opener = 9}, {.until = "aa", .may_end = true}});
  auto constraint = source->Begin();
  EXPECT_EQ(Allowed(*constraint).size(), vocabulary_size_);  // of the second text
  Take(*constraint, {9, 1, 1});
  EXPECT_FALSE(constraint->Accept(0));
  Take(*constraint, {2, 1, 1});
  EXPECT_EQ(Allowed(*constraint), std::vector<Token>{6});
  constraint = source->Begin();
  Take(*constraint, {1, 1, 6, 8});
  EXPECT_TRUE(constraint->IsComplete());

  const auto direct = Source({{.until = "<c>", .opener = 9}});
  constraint = direct->Begin();
  EXPECT_EQ(Allowed(*constraint), (std::vector<Token>{6, 9}));
  EXPECT_FALSE(constraint->Accept(1));
  Take(*constraint, {6, 8});
  EXPECT_TRUE(constraint->IsComplete());
  constraint->Rollback(2);
  EXPECT_EQ(Allowed(*constraint), (std::vector<Token>{6, 9}));
}

// A draft that the grammar forbids is refused like any other that is wrong, and one that it allows
// moves it on once.
TEST_F(EngineConstraintTest, DraftsChangeNothing) {
  std::vector<EngineRequest> requests = {Chat("Who is there?"), Chat("Tell me more.")};
  requests[1].sampling = {.temperature = 1.0, .seed = 4};
  // Every step takes as long as any other, so that drafts always pay.
  Engine* running = nullptr;
  EngineOptions options;
  options.now = [&running] {
    const int64_t steps = running == nullptr ? 0 : running->Stats().steps;
    return EngineClock::time_point(std::chrono::milliseconds(10) * steps);
  };
  const auto engine = ValueOrDie(Engine::Create(EngineParts::Of(*bundle_), options));
  running = engine.get();
  engine->UseDrafter(std::make_unique<NgramDrafter>(NgramOptions{}, &engine->prefix_tree()));
  for (EngineRequest& request : requests) {
    request.constraint = Schema(kPerson);
    const GenerationResult alone = Alone(request);
    for (int time = 0; time < 2; ++time) {
      GenerationResult answer;
      EngineCallbacks callbacks;
      callbacks.on_finish = [&](EngineResult result) { answer = std::move(result.answers[0]); };
      (void)ValueOrDie(engine->Submit(request, callbacks));
      while (engine->Step()) {
      }
      EXPECT_EQ(answer.tokens, alone.tokens);
      EXPECT_EQ(answer.finish, alone.finish);
    }
  }
  const EngineStats stats = engine->Stats();
  EXPECT_GT(stats.accepted_drafts, 20);
  EXPECT_GT(stats.drafted_tokens, stats.accepted_drafts) << "none was wrong";
  running = nullptr;
}

}  // namespace
}  // namespace kvasir
