#include "kvasir/engine/engine_stream.h"

#include <algorithm>
#include <utility>

#include "kvasir/base/check.h"

namespace kvasir {

DryBreakers MakeDryBreakers(const std::vector<std::string>& texts,
                            const EngineVocabulary& vocabulary) {
  const Tokenizer& tokenizer = *vocabulary.tokenizer;
  return DryBreakers(texts, {.size = vocabulary.sampleable_tokens,
                             .bytes = [&](Token token) { return tokenizer.TokenBytes(token); },
                             .encode =
                                 [&](std::string_view text) {
                                   return tokenizer.Encode(
                                       text, {.add_special = false, .parse_special = false});
                                 }});
}

EngineStream::EngineStream(const EngineRequest* request, const EngineCallbacks* callbacks,
                           const EngineVocabulary* vocabulary, const DryBreakers* breakers,
                           int answer, int64_t limit)
    : request_(request),
      callbacks_(callbacks),
      vocabulary_(vocabulary),
      breakers_(breakers),
      answer_(answer),
      limit_(limit),
      sampling_(request->sampling),
      stops_(request->stop_strings) {
  sampling_.seed += static_cast<uint64_t>(answer);
  if (request->pooling) pool_.emplace(*request->pooling);
  if (request->constraint) constraint_ = request->constraint->Begin();
  if (vocabulary->tokenizer != nullptr) {
    detokenizer_.emplace(*vocabulary->tokenizer,
                         StreamOptions{.decode = {}, .continues_text = true});
  }
}

std::vector<Token> EngineStream::Known(int64_t begin, int64_t count) const {
  const std::vector<Token>& prompt = request_->prompt;
  const std::vector<Token>& answer = result_.tokens;
  std::vector<Token> tokens;
  tokens.reserve(static_cast<size_t>(count));
  const auto prompt_size = static_cast<int64_t>(prompt.size());
  for (int64_t i = begin; i < begin + count; ++i) {
    tokens.push_back(i < prompt_size ? prompt[static_cast<size_t>(i)]
                                     : answer[static_cast<size_t>(i - prompt_size)]);
  }
  return tokens;
}

bool EngineStream::IsStopToken(Token token) const {
  if (request_->ignore_stop_tokens && !constraint_) return false;
  const auto holds = [token](const std::vector<Token>& tokens) {
    return std::find(tokens.begin(), tokens.end(), token) != tokens.end();
  };
  return holds(vocabulary_->stop_tokens) || holds(request_->stop_tokens);
}

TokenScores EngineStream::Score(Token token, std::span<const float> logits) const {
  return ScoresOf(logits.first(static_cast<size_t>(vocabulary_->sampleable_tokens)), token,
                  *request_->top_logprobs);
}

void EngineStream::ScorePrompt(Position position, std::span<const float> logits) {
  // What is read again after a preemption has been scored.
  if (position < static_cast<Position>(result_.prompt_scores.size())) return;
  result_.prompt_scores.push_back(
      Score(request_->prompt[static_cast<size_t>(position) + 1], logits));
}

int64_t EngineStream::WantedStates(int64_t tokens, bool is_last) const {
  return pool_ ? pool_->WantedRows(tokens, is_last) : 0;
}

void EngineStream::AddStates(Position begin, ConstFloatRows states) {
  pool_->Add(begin, states);
  if (begin + states.rows == known_tokens()) result_.embedding = pool_->Embedding();
}

Status EngineStream::Accept(std::span<const float> logits, Sampler& sampler) {
  KVASIR_CHECK(!is_done_);
  GenerationResult& result = result_;
  if (limit_ <= 0) Finish(FinishReason::kLength);
  if (is_done_) return {};
  const auto choices = logits.first(static_cast<size_t>(vocabulary_->sampleable_tokens));
  const Token token = sampler.Sample(
      choices, sampling_,
      static_cast<int64_t>(request_->prompt.size()) + result.stats.generated_tokens,
      {request_->prompt, result.tokens, {}, breakers_, &mirostat_, constraint_.get()});
  if (constraint_ && !constraint_->Accept(token)) {
    Finish(FinishReason::kCancelled);
    return NoTokenError();
  }
  ++result.stats.generated_tokens;
  if (IsStopToken(token)) {
    Finish(FinishReason::kStop);
    return {};
  }
  result.tokens.push_back(token);
  if (request_->top_logprobs) result.scores.push_back(Score(token, choices));
  if (callbacks_->on_token) {
    callbacks_->on_token(answer_, token, result_.scores.empty() ? nullptr : &result_.scores.back());
  }
  if (detokenizer_) {
    Show(stops_.Push(
        PushToken(token, request_->shown_special, *vocabulary_->tokenizer, *detokenizer_)));
  }
  if (stops_.matched() || (constraint_ && constraint_->IsComplete())) {
    Finish(FinishReason::kStop);
  } else if (result.stats.generated_tokens == limit_) {
    Finish(FinishReason::kLength);
  }
  return {};
}

void EngineStream::Finish(FinishReason reason) {
  if (is_done_) return;
  is_done_ = true;
  if (detokenizer_) {
    Show(stops_.Push(detokenizer_->Finish()));
    Show(stops_.Finish());
  }
  GenerationResult& result = result_;
  result.finish = reason;
  result.stop_string = stops_.matched_string();
  if (sequence) result.stats.kv_bytes = sequence->nbytes();
}

void EngineStream::Show(std::string_view text) {
  if (text.empty()) return;
  result_.text += text;
  if (callbacks_->on_text) callbacks_->on_text(answer_, text);
}

}  // namespace kvasir
