#include "kvasir/engine/generator.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <span>
#include <utility>

#include "kvasir/engine/stop_matcher.h"

namespace kvasir {
namespace {

class Stopwatch {
 public:
  double ms() const {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start_)
        .count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

double PerSecond(int64_t count, double ms) {
  return ms > 0 ? static_cast<double>(count) * 1000 / ms : 0;
}

TokenScores ScoresOf(std::span<const float> logits, Token token, int64_t alternatives) {
  const Logprobs logprobs(logits);
  return {{token, logprobs.Of(token)}, logprobs.Top(alternatives)};
}

}  // namespace

std::string_view FinishReasonName(FinishReason reason) {
  switch (reason) {
    case FinishReason::kStop:
      return "stop";
    case FinishReason::kLength:
      return "length";
    case FinishReason::kCancelled:
      return "cancelled";
  }
  return "";
}

std::string PushToken(Token token, const std::vector<Token>& shown_special,
                      const Tokenizer& tokenizer, StreamingDetokenizer& detokenizer) {
  if (std::find(shown_special.begin(), shown_special.end(), token) == shown_special.end()) {
    return detokenizer.Push(token);
  }
  return detokenizer.Finish() + tokenizer.TokenText(token);
}

Error NoTokenError() {
  return {ErrorCode::kFailedPrecondition,
          "the grammar allows no token that this model has; change the grammar"};
}

double GenerationStats::prefill_tokens_per_second() const {
  return PerSecond(prompt_tokens - cached_tokens, prefill_ms);
}

double GenerationStats::decode_tokens_per_second() const {
  // The first token comes out of the prefill.
  return PerSecond(std::max<int64_t>(generated_tokens - 1, 0), decode_ms);
}

// The text side of an answer: characters, stop strings, callbacks.
struct Generator::Output {
  const GenerationRequest& request;
  const GenerationCallbacks& callbacks;
  const Tokenizer* tokenizer;
  std::optional<StreamingDetokenizer> detokenizer;
  StopMatcher stops;
  std::string text;

  Output(const GenerationRequest& request, const GenerationCallbacks& callbacks,
         const Tokenizer* tokenizer)
      : request(request), callbacks(callbacks), tokenizer(tokenizer), stops(request.stop_strings) {
    if (tokenizer != nullptr) {
      detokenizer.emplace(*tokenizer, StreamOptions{.decode = {}, .continues_text = true});
    }
  }
  void Push(Token token) {
    if (callbacks.on_token) callbacks.on_token(token);
    if (!detokenizer) return;
    Show(stops.Push(PushToken(token, request.shown_special, *tokenizer, *detokenizer)));
  }
  void Finish() {
    if (!detokenizer) return;
    Show(stops.Push(detokenizer->Finish()));
    Show(stops.Finish());
  }
  void Show(const std::string& piece) {
    text += piece;
    if (callbacks.on_text && !piece.empty()) callbacks.on_text(piece);
  }
};

bool Generator::IsStopToken(Token token) const {
  const auto& stops = bundle_->stop_tokens();
  return std::find(stops.begin(), stops.end(), token) != stops.end();
}

const DryBreakers* Generator::Breakers(const SamplingOptions& options) {
  const Tokenizer* tokenizer = bundle_->tokenizer();
  if (!options.has_dry() || tokenizer == nullptr) return nullptr;
  if (!breakers_ || breaker_texts_ != options.dry.breakers) {
    breaker_texts_ = options.dry.breakers;
    breakers_.emplace(
        breaker_texts_,
        DryBreakers::Vocabulary{.size = bundle_->sampleable_tokens(),
                                .bytes = [&](Token token) { return tokenizer->TokenBytes(token); },
                                .encode =
                                    [&](std::string_view text) {
                                      return tokenizer->Encode(
                                          text, {.add_special = false, .parse_special = false});
                                    }});
  }
  return &*breakers_;
}

// Brings the sequence to the end of the prompt and returns the logits there.
Result<std::vector<float>> Generator::Prefill(const GenerationRequest& request,
                                              CachedSequence& sequence,
                                              const GenerationCallbacks& callbacks,
                                              GenerationResult* result) {
  const Stopwatch watch;
  GenerationStats* const stats = &result->stats;
  stats->prompt_tokens = static_cast<int64_t>(request.prompt.size());
  if (request.scores_prompt && request.top_logprobs) {
    auto logits = ScorePrompt(request, sequence, callbacks, &result->prompt_scores);
    stats->prefill_ms = watch.ms();
    return logits;
  }
  const std::vector<Token>& known = sequence.tokens();
  stats->known_prefix_tokens =
      std::mismatch(known.begin(), known.end(), request.prompt.begin(), request.prompt.end())
          .first -
      known.begin();
  stats->cached_tokens = sequence.Rewind(request.prompt);
  const auto fresh = std::span(request.prompt).subspan(static_cast<size_t>(stats->cached_tokens));
  EvaluateOptions options;
  options.chunk_tokens = request.chunk_tokens;
  options.is_cancelled = callbacks.is_cancelled;
  options.progress = callbacks.on_prefill;
  KVASIR_TRY(const auto logits, sequence.Evaluate(fresh, workspace_, options));
  sequence.AddRestorePoint();
  stats->prefill_ms = watch.ms();
  return std::vector<float>(logits.begin(), logits.end());
}

// Every position's logits are wanted, and no cache holds logits.
Result<std::vector<float>> Generator::ScorePrompt(const GenerationRequest& request,
                                                  CachedSequence& sequence,
                                                  const GenerationCallbacks& callbacks,
                                                  std::vector<TokenScores>* scores) {
  (void)sequence.RewindTo(0);
  EvaluateOptions options;
  options.is_cancelled = callbacks.is_cancelled;
  const std::span<const Token> prompt = request.prompt;
  for (size_t i = 0;; ++i) {
    KVASIR_TRY(const auto logits, sequence.Evaluate(prompt.subspan(i, 1), workspace_, options));
    if (i + 1 == prompt.size()) return std::vector<float>(logits.begin(), logits.end());
    const auto choices = logits.first(static_cast<size_t>(bundle_->sampleable_tokens()));
    scores->push_back(ScoresOf(choices, prompt[i + 1], *request.top_logprobs));
  }
}

Result<GenerationResult> Generator::Generate(const GenerationRequest& request,
                                             CachedSequence& sequence,
                                             const GenerationCallbacks& callbacks) {
  const int64_t context = bundle_->model().context_tokens();
  const int64_t prompt_tokens = static_cast<int64_t>(request.prompt.size());
  if (prompt_tokens == 0) return {ErrorCode::kInvalidArgument, "the prompt has no token"};
  if (prompt_tokens >= context) {
    return {ErrorCode::kInvalidArgument, "the prompt has " + std::to_string(prompt_tokens) +
                                             " tokens and the model's context is " +
                                             std::to_string(context) + "; shorten the prompt"};
  }
  const int64_t choices = bundle_->sampleable_tokens();
  KVASIR_TRY_OK(request.sampling.Validate(choices));
  const int64_t limit = std::min(request.max_tokens, context - prompt_tokens);

  GenerationResult result;
  Output output(request, callbacks, bundle_->tokenizer());
  const auto finish = [&](FinishReason reason) {
    output.Finish();
    result.finish = reason;
    result.text = std::move(output.text);
    result.stop_string = output.stops.matched_string();
    result.stats.kv_bytes = sequence.sequence().nbytes();
  };
  auto prefilled = Prefill(request, sequence, callbacks, &result);
  if (!prefilled.ok()) {
    if (prefilled.error().code != ErrorCode::kCancelled) return prefilled.error();
    finish(FinishReason::kCancelled);
    return result;
  }

  const DryBreakers* breakers = Breakers(request.sampling);
  MirostatState mirostat;
  const auto constraint = request.constraint ? request.constraint->Begin() : nullptr;
  const Stopwatch watch;
  std::span<const float> logits = *prefilled;
  FinishReason reason = FinishReason::kLength;
  while (result.stats.generated_tokens < limit) {
    const Token token =
        sampler_.Sample(logits.first(static_cast<size_t>(choices)), request.sampling,
                        prompt_tokens + result.stats.generated_tokens,
                        {request.prompt, result.tokens, {}, breakers, &mirostat, constraint.get()});
    if (constraint && !constraint->Accept(token)) return NoTokenError();
    ++result.stats.generated_tokens;
    result.stats.decode_ms = watch.ms();
    if (IsStopToken(token) && (constraint || !request.ignore_stop_tokens)) {
      reason = FinishReason::kStop;
      break;
    }
    result.tokens.push_back(token);
    if (request.top_logprobs) {
      result.scores.push_back(
          ScoresOf(logits.first(static_cast<size_t>(choices)), token, *request.top_logprobs));
      if (callbacks.on_scores) callbacks.on_scores(result.scores.back());
    }
    output.Push(token);
    if (output.stops.matched() || (constraint && constraint->IsComplete())) {
      reason = FinishReason::kStop;
      break;
    }
    if (result.stats.generated_tokens == limit) break;
    if (callbacks.is_cancelled && callbacks.is_cancelled()) {
      reason = FinishReason::kCancelled;
      break;
    }
    KVASIR_TRY(logits, sequence.Evaluate(std::span(&token, 1), workspace_));
  }
  finish(reason);
  return result;
}

}  // namespace kvasir
