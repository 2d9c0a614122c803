// EngineStream: one answer being made: its tokens, its text, and its cache while it has one.
// Deliberately without scheduling and memory pressure: the engine decides when it gets logits.
#ifndef KVASIR_ENGINE_ENGINE_STREAM_H_
#define KVASIR_ENGINE_ENGINE_STREAM_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvasir/engine/request.h"
#include "kvasir/engine/stop_matcher.h"
#include "kvasir/engine/swapped_cache.h"
#include "kvasir/kv/kv_sequence.h"
#include "kvasir/sampling/dry_breakers.h"
#include "kvasir/sampling/mirostat.h"
#include "kvasir/sampling/sampler.h"
#include "kvasir/speculative/draft_rounds.h"
#include "kvasir/tokenizer/streaming_detokenizer.h"

namespace kvasir {

// What streams need to know of the model. All of it outlives them.
struct EngineVocabulary {
  const Tokenizer* tokenizer = nullptr;  // null: answers have no text
  std::vector<Token> stop_tokens;        // the model's end tokens
  int64_t sampleable_tokens = 0;         // ids that may be chosen
};

// Where DRY lets no repetition reach across. Looks at the whole vocabulary.
DryBreakers MakeDryBreakers(const std::vector<std::string>& texts,
                            const EngineVocabulary& vocabulary);

class EngineStream {
 public:
  // All must outlive it; `breakers` may be null. `limit`: tokens to generate at most.
  EngineStream(const EngineRequest* request, const EngineCallbacks* callbacks,
               const EngineVocabulary* vocabulary, const DryBreakers* breakers, int answer,
               int64_t limit);

  // Chooses the next token and shows it, which may end the answer. REQUIRES: !is_done(); logits of
  // the last known token. ERRORS: NoTokenError; the answer has then ended.
  Status Accept(std::span<const float> logits, Sampler& sampler);
  // `logits`: of the prompt's token at `position`, which is not its last. Scores the next one.
  void ScorePrompt(Position position, std::span<const float> logits);
  // For requests with pooling: which states are wanted, and where they go. The embedding is
  // complete with the state of the last known token.
  int64_t WantedStates(int64_t tokens, bool is_last) const;
  void AddStates(Position begin, ConstFloatRows states);
  // Tokens of the prompt that need not be evaluated for their states.
  int64_t pooled_tokens() const { return pool_ ? pool_->position() : 0; }
  // Ends the answer. Its blocks stay until the engine takes them.
  void Finish(FinishReason reason);
  bool is_done() const { return is_done_; }

  // Prompt and answer: what the cache has to hold before the next token can be chosen.
  int64_t known_tokens() const {
    return static_cast<int64_t>(request_->prompt.size() + result_.tokens.size());
  }
  // Known tokens [begin, begin + count), one behind the other.
  std::vector<Token> Known(int64_t begin, int64_t count) const;
  KnownTokens known() const { return {request_->prompt, result_.tokens}; }
  int64_t generated_tokens() const { return result_.stats.generated_tokens; }
  // Tokens that may still be chosen.
  int64_t remaining_tokens() const { return limit_ - generated_tokens(); }
  // With the seed of this answer.
  const SamplingOptions& sampling() const { return sampling_; }

  // Null while the stream waits for memory: never admitted, or preempted.
  std::optional<KvSequence> sequence;
  // What a preempted stream has on disk. Null if nothing; never beside a sequence.
  std::unique_ptr<SwappedCache> swapped;

  // Whether it has blocks that others could get: a sequence, or those that one is being read into.
  bool holds_blocks() const { return sequence || is_reading(); }
  bool is_reading() const { return swapped && swapped->state() == SwappedCache::State::kReading; }
  // Every reference to such a block.
  std::vector<const KvBlock*> BlockReferences() const {
    if (sequence) return sequence->BlockReferences();
    return is_reading() ? swapped->BlockReferences() : std::vector<const KvBlock*>();
  }
  // Chose a token since it was given its place.
  bool has_advanced() const { return generated_tokens() > tokens_at_admission; }
  int64_t tokens_at_admission = 0;
  // How many it had chosen when it last gave up its blocks to take others (Engine::StartOver).
  int64_t tokens_at_start_over = -1;
  bool is_starting_over() const { return tokens_at_start_over == generated_tokens(); }
  EngineClock::time_point admitted_at;
  EngineClock::time_point first_token_at;
  DraftedAnswer drafted;

  // The model's hidden state of the last token but one, as a drafter wants it: empty until a step
  // has read that token with it kept. It outlives the loss of the cache, being what it would be
  // again.
  std::span<const float> hidden() const {
    if (hidden_position_ != known_tokens() - 2) return {};
    return hidden_;
  }
  // `state`: one row.
  void KeepHidden(Position position, ConstFloatRows state) {
    hidden_position_ = position;
    hidden_.assign(state.row(0), state.row(0) + state.cols);
  }

  GenerationResult& result() { return result_; }

 private:
  bool IsStopToken(Token token) const;
  TokenScores Score(Token token, std::span<const float> logits) const;
  void Show(std::string_view text);

  const EngineRequest* request_;
  const EngineCallbacks* callbacks_;
  const EngineVocabulary* vocabulary_;
  const DryBreakers* breakers_;
  int answer_;
  int64_t limit_;
  SamplingOptions sampling_;
  MirostatState mirostat_;
  std::unique_ptr<TokenConstraint> constraint_;  // stands behind result_.tokens; null: none
  std::optional<StreamingDetokenizer> detokenizer_;
  StopMatcher stops_;
  std::optional<HiddenPool> pool_;
  std::vector<float> hidden_;
  Position hidden_position_ = -1;
  GenerationResult result_;
  bool is_done_ = false;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_ENGINE_STREAM_H_
