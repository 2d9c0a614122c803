// What an answer is asked for, and what it is: the same for one alone (Generator) and for one among
// others (Engine).
// Deliberately plain values: answers are made elsewhere (answer_builder.h).
#ifndef KVASIR_ENGINE_GENERATION_H_
#define KVASIR_ENGINE_GENERATION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/base/token.h"
#include "kvasir/sampling/logprobs.h"
#include "kvasir/sampling/sampling_options.h"
#include "kvasir/sampling/token_constraint.h"

namespace kvasir {

struct GenerationRequest {
  std::vector<Token> prompt;  // not empty
  int64_t max_tokens = 256;   // new tokens at most; clamped to what the context leaves
  SamplingOptions sampling;
  std::vector<std::string> stop_strings;  // not part of the answer
  std::vector<Token> stop_tokens;         // beside the model's own
  // Go on past all of them, unless a constraint says that the text is complete.
  bool ignore_stop_tokens = false;
  // Special tokens whose text is part of the answer; that of others is not.
  std::vector<Token> shown_special;
  // What the answer has to follow; null: nothing. It ends as soon as nothing else may come. Its
  // constraints are used on the thread that makes the answer alone.
  std::shared_ptr<const TokenConstraintSource> constraint;
  // Set: every token comes with its scores and this many alternatives (0: none).
  std::optional<int64_t> top_logprobs;
  // The prompt's tokens are scored too, as top_logprobs says. They are all evaluated then, whatever
  // is cached.
  bool scores_prompt = false;
  // Drafts per step at most, where there is a drafter; 0: none. Unset: as many as it chooses.
  std::optional<int64_t> max_drafts;
};

// What requests have to fit.
struct GenerationLimits {
  int64_t context_tokens = 0;
  int64_t vocab_size = 0;
  int64_t sampleable_tokens = 0;  // ids below this may be chosen and scored
};

// `max_tokens`: new tokens that are wanted; where it is 0 the prompt may fill the context.
// ERRORS: kInvalidArgument, naming the field.
Status CheckGenerationRequest(const GenerationRequest& request, int64_t max_tokens,
                              const GenerationLimits& limits);

enum class FinishReason {
  kStop,       // an end token or a stop string
  kLength,     // max_tokens, or the context is full
  kCancelled,  // the caller asked
};
// "stop", "length", "cancelled"
std::string_view FinishReasonName(FinishReason reason);

// What the model itself thought of one token (Logprobs), and of the likeliest in its place.
struct TokenScores {
  TokenLogprob token;
  std::vector<TokenLogprob> top;  // likeliest first
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
  double prefill_ms = 0;         // until the first token could be chosen
  double decode_ms = 0;          // from the first generated token to the last
  size_t kv_bytes = 0;           // blocks referenced at the end

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

}  // namespace kvasir

#endif  // KVASIR_ENGINE_GENERATION_H_
