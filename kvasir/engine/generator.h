// Generator: one prompt in, streamed text out, over one CachedSequence.
// Deliberately one request at a time; continuous batching is another class with the same request.
#ifndef KVASIR_ENGINE_GENERATOR_H_
#define KVASIR_ENGINE_GENERATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kvasir/engine/answer_builder.h"
#include "kvasir/engine/cached_sequence.h"
#include "kvasir/engine/model_bundle.h"
#include "kvasir/sampling/sampler.h"
#include "kvasir/speculative/draft_rounds.h"

namespace kvasir {

struct GenerationCallbacks : AnswerBuilder::Listener {
  std::function<void(int64_t done, int64_t total)> on_prefill;
  // Asked before every forward pass.
  std::function<bool()> is_cancelled;
};

class Generator {
 public:
  // The bundle must outlive it. `chunk_tokens`: of a prompt per forward pass; no influence on
  // results.
  explicit Generator(ModelBundle* bundle, int64_t chunk_tokens = 512)
      : bundle_(bundle), chunk_tokens_(chunk_tokens) {}

  // From now on answers are drafted and verified several tokens at a time, at most `max_drafts` of
  // them: faster, and the same bits. Null: no more. The drafter's parts outlive this. `now` is the
  // clock by which drafts have to pay; empty: that of the machine.
  void UseDrafter(std::unique_ptr<Drafter> drafter, int64_t max_drafts,
                  std::function<DraftRounds::Clock::time_point()> now = {});

  // Reuses what `sequence` holds of the prompt. Afterwards the sequence holds the prompt and all
  // generated tokens but the last. Without a tokenizer text stays empty.
  // ERRORS: kInvalidArgument (sampling options, empty or too long prompt), kResourceExhausted,
  // kFailedPrecondition where the constraint allows no token of this vocabulary.
  // Cancellation is no error: the result says so.
  Result<GenerationResult> Generate(const GenerationRequest& request, CachedSequence& sequence,
                                    const GenerationCallbacks& callbacks = {});

 private:
  struct Run;

  Result<std::vector<float>> Prefill(Run& run);
  Result<std::vector<float>> ScorePrompt(Run& run);
  EvaluateOptions HiddenFor(Run& run);
  int64_t MaxDrafts(const Run& run) const;
  Status Accept(Run& run, std::span<const float> logits);
  Status Step(Run& run);

  ModelBundle* bundle_;
  const int64_t chunk_tokens_;
  Workspace workspace_;
  Sampler sampler_;
  std::optional<DraftRounds> draft_rounds_;
  int64_t max_drafts_ = 0;
  DryBreakerCache breakers_;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_GENERATOR_H_
