// Generator: one prompt in, streamed text out, over one CachedSequence.
// Deliberately one request at a time; continuous batching is another class with the same request.
#ifndef KVASIR_ENGINE_GENERATOR_H_
#define KVASIR_ENGINE_GENERATOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/engine/cached_sequence.h"
#include "kvasir/engine/model_bundle.h"
#include "kvasir/sampling/dry_breakers.h"
#include "kvasir/sampling/logprobs.h"
#include "kvasir/sampling/sampler.h"
#include "kvasir/sampling/token_constraint.h"
#include "kvasir/speculative/draft_rounds.h"
#include "kvasir/tokenizer/streaming_detokenizer.h"

namespace kvasir {

enum class FinishReason {
  kStop,       // an end token or a stop string
  kLength,     // max_tokens, or the context is full
  kCancelled,  // the caller asked
};
// "stop", "length", "cancelled"
std::string_view FinishReasonName(FinishReason reason);

struct GenerationRequest {
  std::vector<Token> prompt;  // not empty
  int64_t max_tokens = 256;   // new tokens at most; clamped to what the context leaves
  SamplingOptions sampling;
  std::vector<std::string> stop_strings;  // not part of the answer
  // Go on past end tokens, unless a constraint says that the text is complete.
  bool ignore_stop_tokens = false;
  // Special tokens whose text is part of the answer; that of others is not.
  std::vector<Token> shown_special;
  // What the answer has to follow; null: nothing. It ends as soon as nothing else may come.
  std::shared_ptr<const TokenConstraintSource> constraint;
  int64_t chunk_tokens = 512;  // prefill; results do not depend on it
  // Drafts per step at most, where the engine has a drafter; unset: as many as it chooses.
  std::optional<int64_t> max_drafts;
  // Set: every token comes with its scores and this many alternatives (0: none).
  std::optional<int64_t> top_logprobs;
  // The prompt's tokens are scored too, as top_logprobs says. They are all evaluated then, one at a
  // time, whatever the cache holds.
  bool scores_prompt = false;
};

// What the model itself thought of one token (Logprobs), and of the likeliest in its place.
struct TokenScores {
  TokenLogprob token;
  std::vector<TokenLogprob> top;  // likeliest first
};

// ERRORS: kInvalidArgument if a token of the prompt, behind the first, is among those that no
// vocabulary names and the head has no use for.
Status CheckScored(std::span<const Token> prompt, int64_t sampleable_tokens);
// REQUIRES: 0 <= token < logits.size().
TokenScores ScoresOf(std::span<const float> logits, Token token, int64_t alternatives);

// The text that `token` adds, whose own text is shown if it is one of `shown_special`.
std::string PushToken(Token token, const std::vector<Token>& shown_special,
                      const Tokenizer& tokenizer, StreamingDetokenizer& detokenizer);

// The constraint's grammar asks for what no token of the vocabulary can begin.
Error NoTokenError();

struct GenerationCallbacks {
  // Whole UTF-8 characters of the answer as they become certain.
  std::function<void(std::string_view text)> on_text;
  std::function<void(Token token)> on_token;
  // Before on_token, when the request asks for scores.
  std::function<void(const TokenScores& scores)> on_scores;
  std::function<void(int64_t done, int64_t total)> on_prefill;
  // Asked before every forward pass.
  std::function<bool()> is_cancelled;
};

struct GenerationStats {
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt, not evaluated again
  // Where the prompt parted from all that was cached: at least cached_tokens. What lies between was
  // evaluated again, because window layers no longer held it or for the logits of the last token.
  int64_t known_prefix_tokens = 0;
  int64_t generated_tokens = 0;  // end token included
  int64_t drafted_tokens = 0;    // verified as drafts
  int64_t accepted_drafts = 0;   // of them
  double prefill_ms = 0;
  double decode_ms = 0;  // from the first generated token to the last
  size_t kv_bytes = 0;   // blocks referenced at the end

  double prefill_tokens_per_second() const;
  double decode_tokens_per_second() const;
};

struct GenerationResult {
  std::vector<Token> tokens;               // generated, without the end token
  std::vector<TokenScores> scores;         // of `tokens`, or empty
  std::vector<TokenScores> prompt_scores;  // of the prompt's tokens but the first, or empty
  std::vector<float> embedding;            // EngineRequest::pooling
  std::string text;
  FinishReason finish = FinishReason::kStop;
  std::string stop_string;  // the one that was found, or empty
  GenerationStats stats;
};

class Generator {
 public:
  // The bundle must outlive it.
  explicit Generator(ModelBundle* bundle) : bundle_(bundle) {}

  // From now on answers are drafted and verified several tokens at a time, at most `max_drafts` of
  // them: faster, and the same bits. Null: no more. Without effect where the cache has recurrent
  // layers. The drafter's parts outlive this. `now` is the clock by which drafts have to pay;
  // empty: that of the machine.
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
  struct Output;
  class Answer;

  Result<std::vector<float>> Prefill(Answer& answer, CachedSequence& sequence);
  Result<std::vector<float>> ScorePrompt(Answer& answer, CachedSequence& sequence);
  EvaluateOptions HiddenFor(Answer& answer);
  int64_t MaxDrafts(const Answer& answer, const CachedSequence& sequence) const;
  Status Step(Answer& answer, CachedSequence& sequence);
  bool IsStopToken(Token token) const;
  // What DRY needs of the options; nullptr when it is off or there is no tokenizer.
  const DryBreakers* Breakers(const SamplingOptions& options);

  ModelBundle* bundle_;
  Workspace workspace_;
  Sampler sampler_;
  std::optional<DraftRounds> draft_rounds_;
  int64_t max_drafts_ = 0;
  // Of the last request with DRY: finding them looks at the whole vocabulary.
  std::vector<std::string> breaker_texts_;
  std::optional<DryBreakers> breakers_;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_GENERATOR_H_
