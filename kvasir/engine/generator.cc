#include "kvasir/engine/generator.h"

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

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

double MsSince(DraftRounds::Clock::time_point begin, const DraftRounds& rounds) {
  return std::chrono::duration<double, std::milli>(rounds.Now() - begin).count();
}

}  // namespace

// One call of Generate.
struct Generator::Run {
  const GenerationRequest& request;
  const GenerationCallbacks& callbacks;
  CachedSequence& sequence;
  AnswerBuilder answer;
  DraftedAnswer drafted = {};
  std::vector<float> hidden = {};  // state of the last token in the cache, if the drafter wants it
  Stopwatch since_first_token = {};
};

// What the drafter wants to be told of the states of evaluated tokens, and where it goes.
EvaluateOptions Generator::HiddenFor(Run& run) {
  EvaluateOptions options;
  if (!draft_rounds_ || run.request.max_drafts.value_or(max_drafts_) == 0) return options;
  options.hidden = draft_rounds_->hidden_wanted();
  options.on_hidden = [this, &run](Position begin, ConstFloatRows states) {
    const float* const last = states.row(states.rows - 1);
    run.hidden.assign(last, last + states.cols);
    if (draft_rounds_->hidden_wanted() != HiddenWanted::kAll) return;
    draft_rounds_->Report(run.drafted,
                          {.known = run.answer.known(), .begin = begin, .hidden = states});
  };
  return options;
}

// Brings the sequence to the end of the prompt and returns the logits there.
Result<std::vector<float>> Generator::Prefill(Run& run) {
  const Stopwatch watch;
  const GenerationRequest& request = run.request;
  GenerationStats* const stats = &run.answer.result().stats;
  stats->prompt_tokens = static_cast<int64_t>(request.prompt.size());
  if (request.scores_prompt && request.top_logprobs) {
    auto logits = ScorePrompt(run);
    stats->prefill_ms = watch.ms();
    return logits;
  }
  const std::vector<Token>& known = run.sequence.tokens();
  stats->known_prefix_tokens =
      std::mismatch(known.begin(), known.end(), request.prompt.begin(), request.prompt.end())
          .first -
      known.begin();
  stats->cached_tokens = run.sequence.Rewind(request.prompt);
  const auto fresh = std::span(request.prompt).subspan(static_cast<size_t>(stats->cached_tokens));
  EvaluateOptions options = HiddenFor(run);
  options.chunk_tokens = chunk_tokens_;
  options.is_cancelled = run.callbacks.is_cancelled;
  options.progress = run.callbacks.on_prefill;
  KVASIR_TRY(const auto logits, run.sequence.Evaluate(fresh, workspace_, options));
  run.sequence.AddRestorePoint();
  stats->prefill_ms = watch.ms();
  return std::vector<float>(logits.begin(), logits.end());
}

// Every position's logits are wanted, and no cache holds logits.
Result<std::vector<float>> Generator::ScorePrompt(Run& run) {
  (void)run.sequence.RewindTo(0);
  EvaluateOptions options = HiddenFor(run);
  options.is_cancelled = run.callbacks.is_cancelled;
  const std::span<const Token> prompt = run.request.prompt;
  for (size_t i = 0;; ++i) {
    KVASIR_TRY(const auto logits, run.sequence.Evaluate(prompt.subspan(i, 1), workspace_, options));
    if (i + 1 == prompt.size()) return std::vector<float>(logits.begin(), logits.end());
    run.answer.ScorePrompt(static_cast<Position>(i), logits);
  }
}

Result<GenerationResult> Generator::Generate(const GenerationRequest& request,
                                             CachedSequence& sequence,
                                             const GenerationCallbacks& callbacks) {
  if (sequence.model() != &bundle_->model()) {
    return {ErrorCode::kInvalidArgument, "the sequence is another model's"};
  }
  const GenerationLimits limits = {.context_tokens = bundle_->model().context_tokens(),
                                   .vocab_size = bundle_->model().vocab_size(),
                                   .sampleable_tokens = bundle_->sampleable_tokens()};
  KVASIR_TRY_OK(CheckGenerationRequest(request, request.max_tokens, limits));
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
  const size_t cache_bytes = bundle_->cache_spec()->BytesAt(prompt_tokens);
  if (cache_bytes > bundle_->cache_budget_bytes()) {
    return {ErrorCode::kResourceExhausted,
            "the prompt's cache needs " + std::to_string(cache_bytes) + " bytes and has " +
                std::to_string(bundle_->cache_budget_bytes()) +
                "; shorten the prompt or raise the cache budget (--cache-bytes)"};
  }
  const AnswerVocabulary vocabulary = AnswerVocabulary::Of(*bundle_);
  const auto breakers = breakers_.Get(request.sampling, vocabulary);
  const int64_t room = limits.context_tokens - prompt_tokens;
  Run run = {.request = request,
             .callbacks = callbacks,
             .sequence = sequence,
             .answer = AnswerBuilder(&request, &vocabulary,
                                     {.breakers = breakers.get(),
                                      .most_tokens = std::min(request.max_tokens, room),
                                      .listener = callbacks})};
  const auto prefilled = Prefill(run);
  Status status;
  if (prefilled.ok()) {
    status = Accept(run, *prefilled);
  } else if (prefilled.error().code == ErrorCode::kCancelled) {
    run.answer.Finish(FinishReason::kCancelled);
  } else {
    return prefilled.error();
  }
  while (!run.answer.is_done() && status.ok()) {
    if (callbacks.is_cancelled && callbacks.is_cancelled()) {
      run.answer.Finish(FinishReason::kCancelled);
    } else {
      status = Step(run);
    }
  }
  if (draft_rounds_) {
    draft_rounds_->Finish(run.drafted, run.answer.known(), 0, run.answer.generated_tokens());
  }
  KVASIR_TRY_OK(status);
  run.answer.result().stats.kv_bytes = sequence.sequence().nbytes();
  return std::move(run.answer.result());
}

void Generator::UseDrafter(std::unique_ptr<Drafter> drafter, int64_t max_drafts,
                           std::function<DraftRounds::Clock::time_point()> now) {
  draft_rounds_.reset();
  max_drafts_ = max_drafts;
  if (drafter == nullptr) return;
  draft_rounds_.emplace(std::move(drafter), std::move(now));
}

// How many drafts there is room for, in the request, the cache and the context.
int64_t Generator::MaxDrafts(const Run& run) const {
  const int64_t room =
      std::min({run.answer.remaining_tokens() - 1, run.sequence.sequence().RunLimit() - 1,
                bundle_->model().context_tokens() - run.sequence.position() - 1});
  return std::clamp<int64_t>(room, 0, run.request.max_drafts.value_or(max_drafts_));
}

// Chooses the next token and shows it, which may end the answer.
Status Generator::Accept(Run& run, std::span<const float> logits) {
  if (run.answer.generated_tokens() == 0) run.since_first_token = Stopwatch();
  run.answer.result().stats.decode_ms = run.since_first_token.ms();
  return run.answer.Accept(logits, sampler_);
}

// Evaluates the last token, with drafts behind it if there are any, and chooses what follows.
Status Generator::Step(Run& run) {
  AnswerBuilder& answer = run.answer;
  const std::vector<Token>& chosen = answer.result().tokens;
  std::vector<Token> tokens = {chosen.back()};
  const int64_t most = draft_rounds_ ? MaxDrafts(run) : 0;
  if (draft_rounds_ && draft_rounds_->Begin(most > 0 ? 1 : 0)) {
    DraftSeat seat = {.answer = &run.drafted,
                      .request = {.known = answer.known(),
                                  .max_drafts = most,
                                  .sampling = &answer.sampling(),
                                  .target = &run.sequence.sequence(),
                                  .hidden = run.hidden},
                      .said_tokens = answer.generated_tokens(),
                      .most_tokens = answer.remaining_tokens()};
    const std::vector<Token> drafts = draft_rounds_->Propose({&seat, 1}, 0)[0];
    tokens.insert(tokens.end(), drafts.begin(), drafts.end());
  }
  const KvPool& pool = bundle_->pool();
  const uint64_t committed = pool.committed_bytes();
  const auto begin = draft_rounds_ ? draft_rounds_->Now() : DraftRounds::Clock::time_point();
  const EvaluateOptions hidden = HiddenFor(run);
  auto drafts = static_cast<int64_t>(tokens.size()) - 1;
  int64_t right = 0;
  Status accepted;
  if (drafts > 0) {
    const auto judge = [&](ConstFloatRows logits) {
      for (int64_t row = 0;; ++row) {
        accepted = Accept(run, {logits.row(row), static_cast<size_t>(logits.cols)});
        const bool is_right = accepted.ok() && !answer.is_done() && row < drafts &&
                              chosen.back() == tokens[static_cast<size_t>(row) + 1];
        if (!is_right) break;
        ++right;
      }
      return 1 + right;
    };
    const Status evaluated = run.sequence.EvaluateDrafts(tokens, workspace_, judge, hidden);
    if (evaluated.ok()) {
      draft_rounds_->Judge(
          run.drafted, drafts, right,
          answer.is_done() ? DraftRounds::Answer::kEnded : DraftRounds::Answer::kGoesOn);
      answer.result().stats.drafted_tokens += drafts;
      answer.result().stats.accepted_drafts += right;
    } else {
      drafts = 0;  // memory is short of them
    }
  }
  if (drafts == 0) {
    KVASIR_TRY(const auto logits,
               run.sequence.Evaluate(std::span(tokens).first(1), workspace_, hidden));
    accepted = Accept(run, logits);
  }
  if (draft_rounds_) {
    draft_rounds_->End({.plain_rows = 1,
                        .drafts = drafts,
                        .kept_drafts = right,
                        .ms = MsSince(begin, *draft_rounds_),
                        .is_usual = !answer.is_done(),
                        .committed_bytes = pool.committed_bytes() - committed});
  }
  return accepted;
}

}  // namespace kvasir
