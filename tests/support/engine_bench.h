// A tiny model behind an engine, what a request is answered alone, and requests of all kinds.
// Deliberately without expectations but that every request finishes once: those are the tests'.
#ifndef KVASIR_TESTS_SUPPORT_ENGINE_BENCH_H_
#define KVASIR_TESTS_SUPPORT_ENGINE_BENCH_H_

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/engine/engine.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_policies.h"

namespace kvasir {

using Tokens = std::vector<Token>;

inline EngineRequest Request(Tokens prompt, int64_t max_tokens, uint64_t seed = 0) {
  EngineRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  request.sampling.seed = seed;
  if (seed != 0) request.sampling.temperature = 1.2;
  return request;
}

// One tiny model with one way to store its cache, and the engine under test.
class Bench {
 public:
  explicit Bench(const TinyPolicy& policy)
      : tiny_({.folder = policy.folder, .attention = policy.attention}),
        spec_(policy.Spec(tiny_.model())) {}

  // What still runs is cancelled, and says so.
  ~Bench() { engine_.reset(); }

  const Model& model() const { return tiny_.model(); }
  const ModelConfig& config() const { return tiny_.config(); }
  Backend& backend() { return tiny_.backend(); }
  const KvCacheSpec& spec() const { return *spec_; }
  KvPool& pool() { return *pool_; }
  Engine& engine() { return *engine_; }
  // Also while the engine comes and goes.
  int64_t steps() const { return engine_ ? engine_->Stats().steps : 0; }

  // By this clock every step takes as long as any other: rows are free, so drafts always pay.
  EngineOptions FlatCosts() const {
    EngineOptions options;
    options.now = [this] {
      return EngineClock::time_point(std::chrono::milliseconds(10) * steps());
    };
    return options;
  }

  // Slabs are as small as they come, if nothing else is asked for: what is free in them cannot
  // serve blocks of another size.
  void Start(size_t budget_bytes = size_t{64} << 20, EngineOptions options = {},
             size_t max_slab_bytes = size_t{4} << 10) {
    engine_.reset();
    finished_.clear();
    pool_ = std::make_unique<KvPool>(
        KvPoolOptions{.budget_bytes = budget_bytes, .max_slab_bytes = max_slab_bytes});
    engine_ =
        ValueOrDie(Engine::Create({.model = &tiny_.model(),
                                   .pool = pool_.get(),
                                   .spec = spec_,
                                   .vocabulary = {.sampleable_tokens = tiny_.model().vocab_size()}},
                                  std::move(options)));
  }
  RequestId Submit(const EngineRequest& request, EngineCallbacks callbacks = {}) {
    const RequestId id = engine_->NewId();
    callbacks.on_finish = [this, id](EngineResult result) {
      EXPECT_TRUE(finished_.emplace(id, std::move(result)).second) << "finished twice";
    };
    OrDie(engine_->Submit(id, request, std::move(callbacks), engine_->Breakers(request.sampling)));
    return id;
  }
  void Drain() {
    for (int steps = 0; engine_->Step(); ++steps) ASSERT_LT(steps, 100'000);
  }
  bool IsFinished(RequestId id) const { return finished_.count(id) == 1; }
  const EngineResult& ResultOf(RequestId id) { return finished_.at(id); }
  // Of a request that ended well.
  const GenerationResult& Answer(RequestId id, int answer = 0) {
    const EngineResult& result = finished_.at(id);
    EXPECT_TRUE(result.status.ok()) << result.status.error().message;
    return result.answers.at(static_cast<size_t>(answer));
  }
  // What running requests hold: without what is only cached.
  size_t LiveBytes() { return pool_->used_bytes() - engine_->prefix_tree().nbytes_exclusive(); }

  // The same request by the shortest way there is: one sequence, one token at a time.
  Tokens Alone(const EngineRequest& request, int answer = 0) {
    KvPool pool({.budget_bytes = size_t{64} << 20});
    KvSequence sequence = ValueOrDie(KvSequence::Create(&pool, spec_));
    SamplingOptions sampling = request.sampling;
    sampling.seed += static_cast<uint64_t>(answer);
    Sampler sampler;
    MirostatState mirostat;
    Tokens known = request.prompt;
    const size_t end = request.prompt.size() + static_cast<size_t>(request.max_tokens);
    Tokens output;
    for (size_t i = 0; known.size() < end; ++i) {
      const SequenceRun run = {&sequence, std::span(known).subspan(i, 1), 1};
      const auto rows = ValueOrDie(tiny_.model().Forward(std::span(&run, 1), tiny_.workspace()));
      if (i + 1 < known.size()) continue;
      output.push_back(sampler.Sample({rows.row(0), static_cast<size_t>(rows.cols)}, sampling,
                                      static_cast<Position>(known.size()),
                                      {request.prompt, output, {}, nullptr, &mirostat}));
      known.push_back(output.back());
    }
    return output;
  }

 private:
  TinyModel tiny_;
  std::shared_ptr<const KvCacheSpec> spec_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<Engine> engine_;
  std::map<RequestId, EngineResult> finished_;
};

// Why an engine over a tiny model does not begin with these options.
inline Error RefusalOf(EngineOptions options) {
  TinyModel tiny({.folder = kTinyFull});
  KvPool pool({.budget_bytes = 1 << 20});
  const auto engine =
      Engine::Create({.model = &tiny.model(),
                      .pool = &pool,
                      .spec = std::make_shared<const KvCacheSpec>(tiny.model().CacheSpec({})),
                      .vocabulary = {.sampleable_tokens = tiny.model().vocab_size()}},
                     std::move(options));
  EXPECT_FALSE(engine.ok());
  return engine.ok() ? Error{} : engine.error();
}

// Requests of all kinds: greedy and sampled, short and long, with penalties, some with a beginning
// in common.
inline std::vector<EngineRequest> Mixed(int64_t vocab_size) {
  const Tokens shared = RandomTokens(150, vocab_size, 99);
  std::vector<EngineRequest> requests;
  for (uint64_t i = 0; i < 8; ++i) {
    Tokens prompt = RandomTokens(3 + 41 * static_cast<int64_t>(i), vocab_size, i);
    if (i % 3 == 1) prompt.insert(prompt.begin(), shared.begin(), shared.end());
    requests.push_back(Request(prompt, 8 + 7 * static_cast<int64_t>(i % 5), i % 2 == 0 ? 0 : i));
  }
  requests[3].sampling.repetition_penalty = 1.3;
  requests[5].sampling.mirostat.version = 2;
  requests[6].sampling.frequency_penalty = 0.5;
  return requests;
}

inline std::vector<TinyPolicy> EnginePolicies() {
  std::vector<TinyPolicy> policies = {{"full_f32", kTinyFull, "f32", "f32"},
                                      {"windows_f32", kTinyWindows, "f32", "f32"},
                                      {"qwen_f16", kTinyQwen, "f16", "f16"}};
  for (const TinyPolicy& policy : TinyPolicies()) {
    const std::string name = policy.name;
    if (name == "affine4" || name == "turbo4" || name == "dense_ends" || name == "keydiff_recent" ||
        name == "tova" || name.starts_with("states")) {
      policies.push_back(policy);
    }
  }
  return policies;
}

}  // namespace kvasir

#endif  // KVASIR_TESTS_SUPPORT_ENGINE_BENCH_H_
