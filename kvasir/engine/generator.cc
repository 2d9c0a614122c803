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

double MsSince(DraftRounds::Clock::time_point begin, const DraftRounds& rounds) {
  return std::chrono::duration<double, std::milli>(rounds.Now() - begin).count();
}

}  // namespace

Status CheckScored(std::span<const Token> prompt, int64_t sampleable_tokens) {
  for (size_t i = 1; i < prompt.size(); ++i) {
    if (prompt[i] >= 0 && prompt[i] < sampleable_tokens) continue;
    return {ErrorCode::kInvalidArgument,
            "token " + std::to_string(prompt[i]) +
                " of the prompt cannot be scored: the vocabulary has " +
                std::to_string(sampleable_tokens) + " tokens"};
  }
  return {};
}

TokenScores ScoresOf(std::span<const float> logits, Token token, int64_t alternatives) {
  const Logprobs logprobs(logits);
  return {{token, logprobs.Of(token)}, logprobs.Top(alternatives)};
}

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

// The answer being made: what is chosen from logits, one token after the other.
class Generator::Answer {
 public:
  Answer(const GenerationRequest& request, const GenerationCallbacks& callbacks,
         Generator& generator, int64_t limit)
      : request(request),
        output(request, callbacks, generator.bundle_->tokenizer()),
        limit(limit),
        generator_(generator),
        choices_(static_cast<size_t>(generator.bundle_->sampleable_tokens())),
        breakers_(generator.Breakers(request.sampling)),
        constraint_(request.constraint ? request.constraint->Begin() : nullptr) {}

  // Chooses the next token and shows it, which may end the answer.
  Status Accept(std::span<const float> logits) {
    if (result.stats.generated_tokens == 0) watch_ = Stopwatch();
    const auto choices = logits.first(choices_);
    const Token token = generator_.sampler_.Sample(
        choices, request.sampling,
        static_cast<int64_t>(request.prompt.size()) + result.stats.generated_tokens,
        {request.prompt, result.tokens, {}, breakers_, &mirostat_, constraint_.get()});
    if (constraint_ && !constraint_->Accept(token)) return NoTokenError();
    ++result.stats.generated_tokens;
    result.stats.decode_ms = watch_.ms();
    if (generator_.IsStopToken(token) && (constraint_ || !request.ignore_stop_tokens)) {
      return End(FinishReason::kStop);
    }
    result.tokens.push_back(token);
    if (request.top_logprobs) {
      result.scores.push_back(ScoresOf(choices, token, *request.top_logprobs));
      if (output.callbacks.on_scores) output.callbacks.on_scores(result.scores.back());
    }
    output.Push(token);
    if (output.stops.matched() || (constraint_ && constraint_->IsComplete())) {
      return End(FinishReason::kStop);
    }
    if (result.stats.generated_tokens == limit) return End(FinishReason::kLength);
    return {};
  }
  Status End(FinishReason reason) {
    is_done = true;
    result.finish = reason;
    return {};
  }
  GenerationResult Take(const CachedSequence& sequence) {
    output.Finish();
    result.text = std::move(output.text);
    result.stop_string = output.stops.matched_string();
    result.stats.kv_bytes = sequence.sequence().nbytes();
    return std::move(result);
  }
  KnownTokens known() const { return {request.prompt, result.tokens}; }
  int64_t remaining_tokens() const { return limit - result.stats.generated_tokens; }

  const GenerationRequest& request;
  Output output;
  const int64_t limit;
  GenerationResult result;
  DraftedAnswer drafted;
  std::vector<float> hidden;  // state of the last token in the cache, if the drafter wants it
  bool is_done = false;

 private:
  Generator& generator_;
  const size_t choices_;
  const DryBreakers* const breakers_;
  MirostatState mirostat_;
  const std::unique_ptr<TokenConstraint> constraint_;
  Stopwatch watch_;
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

// What the drafter wants to be told of the states of evaluated tokens, and where it goes.
EvaluateOptions Generator::HiddenFor(Answer& answer) {
  EvaluateOptions options;
  if (!draft_rounds_) return options;
  options.hidden = draft_rounds_->hidden_wanted();
  options.on_hidden = [this, &answer](Position begin, ConstFloatRows states) {
    const float* const last = states.row(states.rows - 1);
    answer.hidden.assign(last, last + states.cols);
    if (draft_rounds_->hidden_wanted() != HiddenWanted::kAll) return;
    draft_rounds_->Report(answer.drafted,
                          {.known = answer.known(), .begin = begin, .hidden = states});
  };
  return options;
}

// Brings the sequence to the end of the prompt and returns the logits there.
Result<std::vector<float>> Generator::Prefill(Answer& answer, CachedSequence& sequence) {
  const Stopwatch watch;
  const GenerationRequest& request = answer.request;
  GenerationStats* const stats = &answer.result.stats;
  stats->prompt_tokens = static_cast<int64_t>(request.prompt.size());
  if (request.scores_prompt && request.top_logprobs) {
    auto logits = ScorePrompt(answer, sequence);
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
  EvaluateOptions options = HiddenFor(answer);
  options.chunk_tokens = request.chunk_tokens;
  options.is_cancelled = answer.output.callbacks.is_cancelled;
  options.progress = answer.output.callbacks.on_prefill;
  KVASIR_TRY(const auto logits, sequence.Evaluate(fresh, workspace_, options));
  sequence.AddRestorePoint();
  stats->prefill_ms = watch.ms();
  return std::vector<float>(logits.begin(), logits.end());
}

// Every position's logits are wanted, and no cache holds logits.
Result<std::vector<float>> Generator::ScorePrompt(Answer& answer, CachedSequence& sequence) {
  (void)sequence.RewindTo(0);
  EvaluateOptions options = HiddenFor(answer);
  options.is_cancelled = answer.output.callbacks.is_cancelled;
  const std::span<const Token> prompt = answer.request.prompt;
  for (size_t i = 0;; ++i) {
    KVASIR_TRY(const auto logits, sequence.Evaluate(prompt.subspan(i, 1), workspace_, options));
    if (i + 1 == prompt.size()) return std::vector<float>(logits.begin(), logits.end());
    const auto choices = logits.first(static_cast<size_t>(bundle_->sampleable_tokens()));
    answer.result.prompt_scores.push_back(
        ScoresOf(choices, prompt[i + 1], *answer.request.top_logprobs));
  }
}

Result<GenerationResult> Generator::Generate(const GenerationRequest& request,
                                             CachedSequence& sequence,
                                             const GenerationCallbacks& callbacks) {
  const int64_t context = bundle_->model().context_tokens();
  const int64_t prompt_tokens = static_cast<int64_t>(request.prompt.size());
  if (sequence.model() != &bundle_->model()) {
    return {ErrorCode::kInvalidArgument, "the sequence is another model's"};
  }
  if (prompt_tokens == 0) return {ErrorCode::kInvalidArgument, "the prompt has no token"};
  // Where nothing is to follow it, a prompt may fill the context.
  if (prompt_tokens > context || (prompt_tokens == context && request.max_tokens > 0)) {
    return {ErrorCode::kInvalidArgument, "the prompt has " + std::to_string(prompt_tokens) +
                                             " tokens and the model's context is " +
                                             std::to_string(context) + "; shorten the prompt"};
  }
  if (request.top_logprobs.value_or(0) < 0) {
    return {ErrorCode::kInvalidArgument,
            "top_logprobs is " + std::to_string(*request.top_logprobs) + ", it must be 0 or more"};
  }
  KVASIR_TRY_OK(request.sampling.Validate(bundle_->sampleable_tokens()));
  if (request.scores_prompt) {
    KVASIR_TRY_OK(CheckScored(request.prompt, bundle_->sampleable_tokens()));
  }
  const size_t cache_bytes = bundle_->cache_spec()->BytesAt(prompt_tokens);
  if (cache_bytes > bundle_->cache_budget_bytes()) {
    return {ErrorCode::kResourceExhausted,
            "the prompt's cache needs " + std::to_string(cache_bytes) + " bytes and has " +
                std::to_string(bundle_->cache_budget_bytes()) +
                "; shorten the prompt or raise the cache budget (--cache-bytes)"};
  }
  Answer answer(request, callbacks, *this, std::min(request.max_tokens, context - prompt_tokens));
  const auto prefilled = Prefill(answer, sequence);
  if (!prefilled.ok()) {
    if (prefilled.error().code != ErrorCode::kCancelled) return prefilled.error();
    KVASIR_TRY_OK(answer.End(FinishReason::kCancelled));
  } else if (answer.limit <= 0) {
    KVASIR_TRY_OK(answer.End(FinishReason::kLength));
  } else {
    KVASIR_TRY_OK(answer.Accept(*prefilled));
  }
  Status status;
  while (!answer.is_done && status.ok()) {
    if (callbacks.is_cancelled && callbacks.is_cancelled()) {
      status = answer.End(FinishReason::kCancelled);
    } else {
      status = Step(answer, sequence);
    }
  }
  if (draft_rounds_) {
    draft_rounds_->Finish(answer.drafted, answer.known(), 0, answer.result.stats.generated_tokens);
  }
  KVASIR_TRY_OK(status);
  return answer.Take(sequence);
}

void Generator::UseDrafter(std::unique_ptr<Drafter> drafter, int64_t max_drafts,
                           std::function<DraftRounds::Clock::time_point()> now) {
  draft_rounds_.reset();
  max_drafts_ = max_drafts;
  if (drafter == nullptr || bundle_->cache_spec()->HasRecurrentLayers()) return;
  draft_rounds_.emplace(std::move(drafter), std::move(now));
}

// How many drafts there is room for, in the request, the cache and the context.
int64_t Generator::MaxDrafts(const Answer& answer, const CachedSequence& sequence) const {
  const int64_t room = std::min({answer.remaining_tokens() - 1, sequence.sequence().RunLimit() - 1,
                                 bundle_->model().context_tokens() - sequence.position() - 1});
  return std::clamp<int64_t>(room, 0, answer.request.max_drafts.value_or(max_drafts_));
}

// Evaluates the last token, with drafts behind it if there are any, and chooses what follows.
Status Generator::Step(Answer& answer, CachedSequence& sequence) {
  std::vector<Token> tokens = {answer.result.tokens.back()};
  const int64_t most = draft_rounds_ ? MaxDrafts(answer, sequence) : 0;
  if (draft_rounds_ && draft_rounds_->Begin(most > 0 ? 1 : 0)) {
    DraftSeat seat = {.answer = &answer.drafted,
                      .request = {.known = answer.known(),
                                  .max_drafts = most,
                                  .sampling = &answer.request.sampling,
                                  .target = &sequence.sequence(),
                                  .hidden = answer.hidden},
                      .said_tokens = answer.result.stats.generated_tokens,
                      .most_tokens = answer.remaining_tokens()};
    const std::vector<Token> drafts = draft_rounds_->Propose({&seat, 1}, 0)[0];
    tokens.insert(tokens.end(), drafts.begin(), drafts.end());
  }
  const auto begin = draft_rounds_ ? draft_rounds_->Now() : DraftRounds::Clock::time_point();
  const EvaluateOptions hidden = HiddenFor(answer);
  auto drafts = static_cast<int64_t>(tokens.size()) - 1;
  int64_t right = 0;
  Status accepted;
  if (drafts > 0) {
    const auto judge = [&](ConstFloatRows logits) {
      for (int64_t row = 0;; ++row) {
        accepted = answer.Accept({logits.row(row), static_cast<size_t>(logits.cols)});
        const bool is_right = accepted.ok() && !answer.is_done && row < drafts &&
                              answer.result.tokens.back() == tokens[static_cast<size_t>(row) + 1];
        if (!is_right) break;
        ++right;
      }
      return 1 + right;
    };
    const Status evaluated = sequence.EvaluateDrafts(tokens, workspace_, judge, hidden);
    if (evaluated.ok()) {
      draft_rounds_->Judge(
          answer.drafted, drafts, right,
          answer.is_done ? DraftRounds::Answer::kEnded : DraftRounds::Answer::kGoesOn);
      answer.result.stats.drafted_tokens += drafts;
      answer.result.stats.accepted_drafts += right;
    } else {
      drafts = 0;  // memory is short of them
    }
  }
  if (drafts == 0) {
    KVASIR_TRY(const auto logits,
               sequence.Evaluate(std::span(tokens).first(1), workspace_, hidden));
    accepted = answer.Accept(logits);
  }
  if (draft_rounds_) {
    draft_rounds_->End({.plain_rows = 1,
                        .drafts = drafts,
                        .kept_drafts = right,
                        .ms = MsSince(begin, *draft_rounds_),
                        .is_usual = !answer.is_done});
  }
  return accepted;
}

}  // namespace kvasir
