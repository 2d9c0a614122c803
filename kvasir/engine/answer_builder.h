// AnswerBuilder: one answer being made: its tokens, their scores, and its text.
// Deliberately without a cache: who has one brings logits, and decides when.
#ifndef KVASIR_ENGINE_ANSWER_BUILDER_H_
#define KVASIR_ENGINE_ANSWER_BUILDER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/base/token.h"
#include "kvasir/engine/generation.h"
#include "kvasir/engine/stop_matcher.h"
#include "kvasir/sampling/dry_breakers.h"
#include "kvasir/sampling/mirostat.h"
#include "kvasir/sampling/sampler.h"
#include "kvasir/speculative/known_tokens.h"
#include "kvasir/tokenizer/streaming_detokenizer.h"
#include "kvasir/tokenizer/tokenizer.h"

namespace kvasir {

class ModelBundle;

// What answers need to know of the model. All of it outlives them.
struct AnswerVocabulary {
  const Tokenizer* tokenizer = nullptr;  // null: answers have no text
  std::vector<Token> stop_tokens;        // the model's end tokens
  int64_t sampleable_tokens = 0;         // ids that may be chosen

  static AnswerVocabulary Of(const ModelBundle& bundle);
};

class AnswerBuilder {
 public:
  // Who hears of an answer while it is made. Either may be empty.
  struct Listener {
    // Before the text it completes; not for end tokens. The scores are null unless asked for.
    std::function<void(Token token, const TokenScores* scores)> on_token;
    // Whole UTF-8 characters as they become certain.
    std::function<void(std::string_view text)> on_text;
  };
  struct Options {
    const DryBreakers* breakers = nullptr;  // of the request's DRY; outlives the answer
    int64_t most_tokens = 0;                // to generate
    uint64_t seed_offset = 0;               // to the request's seed
    Listener listener;
  };

  // Request and vocabulary must outlive it.
  AnswerBuilder(const GenerationRequest* request, const AnswerVocabulary* vocabulary,
                Options options);

  // Chooses the next token and shows it, which may end the answer. REQUIRES: !is_done(); logits of
  // the last known token. ERRORS: kFailedPrecondition where the constraint allows no token; the
  // answer has then ended.
  Status Accept(std::span<const float> logits, Sampler& sampler);
  // `logits`: of the prompt's token at `position`, which is not its last. Scores the next one,
  // once.
  void ScorePrompt(Position position, std::span<const float> logits);
  // Shows what of the text was held back. Does nothing once the answer has ended.
  void Finish(FinishReason reason);
  bool is_done() const { return is_done_; }

  KnownTokens known() const { return {request_->prompt, result_.tokens}; }
  // Prompt and answer: what a cache has to hold before the next token can be chosen.
  int64_t known_tokens() const {
    return static_cast<int64_t>(request_->prompt.size() + result_.tokens.size());
  }
  int64_t generated_tokens() const { return result_.stats.generated_tokens; }
  // Tokens that may still be chosen.
  int64_t remaining_tokens() const { return options_.most_tokens - generated_tokens(); }
  // With the seed of this answer.
  const SamplingOptions& sampling() const { return sampling_; }

  GenerationResult& result() { return result_; }
  const GenerationResult& result() const { return result_; }

 private:
  bool IsStopToken(Token token) const;
  TokenScores Score(Token token, std::span<const float> choices) const;
  // Of the logits, those of tokens that may be chosen.
  std::span<const float> Choices(std::span<const float> logits) const {
    return logits.first(static_cast<size_t>(vocabulary_->sampleable_tokens));
  }
  // The text that `token` adds.
  std::string Push(Token token);
  void Show(std::string_view text);

  const GenerationRequest* request_;
  const AnswerVocabulary* vocabulary_;
  Options options_;
  SamplingOptions sampling_;
  MirostatState mirostat_;
  std::unique_ptr<TokenConstraint> constraint_;  // stands behind result_.tokens; null: none
  std::optional<StreamingDetokenizer> detokenizer_;
  StopMatcher stops_;
  GenerationResult result_;
  bool is_done_ = false;
};

// Where DRY lets no repetition reach across, for the last few lists of texts: finding it looks at
// the whole vocabulary.
// THREADS: one at a time.
class DryBreakerCache {
 public:
  // Null where DRY is off or there is no tokenizer.
  std::shared_ptr<const DryBreakers> Get(const SamplingOptions& options,
                                         const AnswerVocabulary& vocabulary);

 private:
  struct Entry {
    std::vector<std::string> texts;
    std::shared_ptr<const DryBreakers> breakers;
  };
  std::vector<Entry> entries_;  // the one used last comes last
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_ANSWER_BUILDER_H_
