#include "kvasir/engine/answer_builder.h"

#include <algorithm>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/engine/model_bundle.h"

namespace kvasir {
namespace {

bool Holds(const std::vector<Token>& tokens, Token token) {
  return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
}

}  // namespace

AnswerVocabulary AnswerVocabulary::Of(const ModelBundle& bundle) {
  return {.tokenizer = bundle.tokenizer(),
          .stop_tokens = bundle.stop_tokens(),
          .sampleable_tokens = bundle.sampleable_tokens()};
}

AnswerBuilder::AnswerBuilder(const GenerationRequest* request, const AnswerVocabulary* vocabulary,
                             Options options)
    : request_(request),
      vocabulary_(vocabulary),
      options_(std::move(options)),
      sampling_(request->sampling),
      stops_(request->stop_strings) {
  sampling_.seed += options_.seed_offset;
  if (request->constraint) constraint_ = request->constraint->Begin();
  if (vocabulary->tokenizer != nullptr) {
    detokenizer_.emplace(*vocabulary->tokenizer,
                         StreamOptions{.decode = {}, .continues_text = true});
  }
}

bool AnswerBuilder::IsStopToken(Token token) const {
  if (request_->ignore_stop_tokens && !constraint_) return false;
  return Holds(vocabulary_->stop_tokens, token) || Holds(request_->stop_tokens, token);
}

TokenScores AnswerBuilder::Score(Token token, std::span<const float> choices) const {
  const Logprobs logprobs(choices);
  return {{token, logprobs.Of(token)}, logprobs.Top(*request_->top_logprobs)};
}

void AnswerBuilder::ScorePrompt(Position position, std::span<const float> logits) {
  // What is read again after a preemption has been scored.
  if (position < static_cast<Position>(result_.prompt_scores.size())) return;
  const Token next = request_->prompt[static_cast<size_t>(position) + 1];
  result_.prompt_scores.push_back(Score(next, Choices(logits)));
}

Status AnswerBuilder::Accept(std::span<const float> logits, Sampler& sampler) {
  KVASIR_CHECK(!is_done_);
  if (options_.most_tokens <= 0) Finish(FinishReason::kLength);
  if (is_done_) return {};
  int64_t& generated = result_.stats.generated_tokens;
  const std::span<const float> choices = Choices(logits);
  const Token token = sampler.Sample(
      choices, sampling_, static_cast<int64_t>(request_->prompt.size()) + generated,
      {request_->prompt, result_.tokens, {}, options_.breakers, &mirostat_, constraint_.get()});
  if (constraint_ && !constraint_->Accept(token)) {
    Finish(FinishReason::kCancelled);
    return {ErrorCode::kFailedPrecondition,
            "the grammar allows no token that this model has; change the grammar"};
  }
  ++generated;
  if (IsStopToken(token)) {
    Finish(FinishReason::kStop);
    return {};
  }
  result_.tokens.push_back(token);
  if (request_->top_logprobs) result_.scores.push_back(Score(token, choices));
  if (options_.listener.on_token) {
    options_.listener.on_token(token, result_.scores.empty() ? nullptr : &result_.scores.back());
  }
  if (detokenizer_) Show(stops_.Push(Push(token)));
  if (stops_.matched() || (constraint_ && constraint_->IsComplete())) {
    Finish(FinishReason::kStop);
  } else if (generated == options_.most_tokens) {
    Finish(FinishReason::kLength);
  }
  return {};
}

std::string AnswerBuilder::Push(Token token) {
  if (!Holds(request_->shown_special, token)) return detokenizer_->Push(token);
  return detokenizer_->Finish() + vocabulary_->tokenizer->TokenText(token);
}

void AnswerBuilder::Finish(FinishReason reason) {
  if (is_done_) return;
  is_done_ = true;
  if (detokenizer_) {
    Show(stops_.Push(detokenizer_->Finish()));
    Show(stops_.Finish());
  }
  result_.finish = reason;
  result_.stop_string = stops_.matched_string();
}

void AnswerBuilder::Show(std::string_view text) {
  if (text.empty()) return;
  result_.text += text;
  if (options_.listener.on_text) options_.listener.on_text(text);
}

std::shared_ptr<const DryBreakers> DryBreakerCache::Get(const SamplingOptions& options,
                                                        const AnswerVocabulary& vocabulary) {
  if (!options.has_dry() || vocabulary.tokenizer == nullptr) return nullptr;
  constexpr size_t kMostEntries = 8;
  const auto known = std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.texts == options.dry.breakers;
  });
  if (known != entries_.end()) {
    std::rotate(known, known + 1, entries_.end());
    return entries_.back().breakers;
  }
  const Tokenizer& tokenizer = *vocabulary.tokenizer;
  const DryBreakers::Vocabulary words = {
      .size = vocabulary.sampleable_tokens,
      .bytes = [&](Token token) { return tokenizer.TokenBytes(token); },
      .encode =
          [&](std::string_view text) {
            return tokenizer.Encode(text, {.add_special = false, .parse_special = false});
          }};
  if (entries_.size() == kMostEntries) entries_.erase(entries_.begin());
  entries_.push_back(
      {options.dry.breakers, std::make_shared<const DryBreakers>(options.dry.breakers, words)});
  return entries_.back().breakers;
}

}  // namespace kvasir
