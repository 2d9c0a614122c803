// Answers as text, many at once on the bundled model: what Generator says to each alone.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kvasir/engine/engine.h"
#include "kvasir/engine/generator.h"
#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

class EngineTextTest : public testing::Test {
 protected:
  EngineTextTest() {
    BundleOptions options;
    options.kv_budget_bytes = size_t{64} << 20;
    bundle_ = ValueOrDie(
        ModelBundle::Load(std::string(KVASIR_SOURCE_DIR) + "/models/kvasir-demo", options));
  }

  GenerationRequest Chat(const std::string& text) {
    GenerationRequest request;
    request.prompt = ValueOrDie(
        bundle_->ChatTokens(Json::Array{Json(Json::Object{{"role", "user"}, {"content", text}})}));
    request.max_tokens = 40;
    return request;
  }
  GenerationResult Alone(const GenerationRequest& request) {
    CachedSequence sequence = ValueOrDie(bundle_->NewSequence());
    return ValueOrDie(Generator(bundle_.get()).Generate(request, sequence));
  }
  static EngineRequest ToEngine(const GenerationRequest& request) {
    EngineRequest engine;
    engine.prompt = request.prompt;
    engine.max_tokens = request.max_tokens;
    engine.sampling = request.sampling;
    engine.stop_strings = request.stop_strings;
    engine.ignore_stop_tokens = request.ignore_stop_tokens;
    return engine;
  }

  std::unique_ptr<ModelBundle> bundle_;
};

TEST_F(EngineTextTest, AnswersAreThoseOfTheGenerator) {
  std::vector<GenerationRequest> requests = {Chat("Who are you?"), Chat("What is a cache?"),
                                             Chat("Who are you?"), Chat("Copy this: 1, 2, 3, 4"),
                                             Chat("Copy this: 1, 2, 3, 4")};
  requests[2].sampling = {.temperature = 1.3, .seed = 5};
  const std::string whole = Alone(requests[0]).text;
  ASSERT_GT(whole.size(), 12u);
  requests.push_back(requests[0]);
  requests.back().stop_strings = {whole.substr(6, 4)};
  requests[3].sampling.dry.multiplier = 2;
  requests[4].ignore_stop_tokens = true;

  std::vector<GenerationResult> wanted;
  for (const GenerationRequest& request : requests) wanted.push_back(Alone(request));
  const auto engine = ValueOrDie(Engine::Create(EngineParts::Of(*bundle_)));
  std::vector<std::string> streamed(requests.size());
  std::vector<GenerationResult> results(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    EngineCallbacks callbacks;
    callbacks.on_text = [&, i](int, std::string_view text) { streamed[i] += text; };
    callbacks.on_finish = [&, i](EngineResult result) { results[i] = result.answers[0]; };
    (void)ValueOrDie(engine->Submit(ToEngine(requests[i]), callbacks));
    engine->Step();
  }
  while (engine->Step()) {
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_EQ(results[i].tokens, wanted[i].tokens) << i;
    EXPECT_EQ(results[i].text, wanted[i].text) << i;
    EXPECT_EQ(results[i].text, streamed[i]) << i;
    EXPECT_EQ(results[i].finish, wanted[i].finish) << i;
    EXPECT_EQ(results[i].stop_string, wanted[i].stop_string) << i;
    EXPECT_EQ(results[i].stats.generated_tokens, wanted[i].stats.generated_tokens) << i;
    EXPECT_EQ(results[i].stats.prompt_tokens, wanted[i].stats.prompt_tokens) << i;
  }
  EXPECT_GT(results[2].stats.cached_tokens, 0);
}

}  // namespace
}  // namespace kvasir
