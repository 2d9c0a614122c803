#include "kvasir/server/text_format.h"

#include <algorithm>
#include <utility>

#include "kvasir/tokenizer/token_name.h"

namespace kvasir {
namespace {

int64_t Characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char byte) { return (static_cast<uint8_t>(byte) & 0xC0) != 0x80; });
}

}  // namespace

// {tokens, token_logprobs, top_logprobs, text_offset}: four lists, one entry per token.
class TextFormat::Legacy {
 public:
  // `echo`: the text of the prompt, if its tokens come first.
  Legacy(const Tokenizer& tokenizer, int64_t offset, std::string_view echo = {})
      : tokenizer_(tokenizer), offset_(offset), echo_(echo) {}

  // The first token of a prompt, which nothing predicts.
  void AddFirst(Token token) { Add(token, nullptr, nullptr); }
  void Add(const TokenScores& scores) {
    Json top = Json::Object();
    for (const TokenLogprob& other : scores.top) {
      top.Set(TokenName(tokenizer_, other.token), FiniteLogprob(other.logprob));
    }
    // OpenAI's has the chosen token beside the likeliest ones.
    top.Set(TokenName(tokenizer_, scores.token.token), FiniteLogprob(scores.token.logprob));
    Add(scores.token.token, FiniteLogprob(scores.token.logprob), std::move(top));
  }
  int64_t offset() const { return offset_; }
  Json ToJson() && {
    return Json::Object{{"tokens", std::move(tokens_)},
                        {"token_logprobs", std::move(logprobs_)},
                        {"top_logprobs", std::move(top_)},
                        {"text_offset", std::move(offsets_)}};
  }

 private:
  void Add(Token token, Json logprob, Json top) {
    tokens_.push_back(TokenName(tokenizer_, token));
    logprobs_.push_back(std::move(logprob));
    top_.push_back(std::move(top));
    offsets_.push_back(offset_);
    offset_ += Characters(TextOf(token));
  }

  // What of the text a token is. Special tokens are in a prompt's text if they are written there,
  // which a <bos> that was put before it is not.
  std::string TextOf(Token token) {
    std::string text = tokenizer_.TokenBytes(token);
    if (text.empty() && echo_.starts_with(tokenizer_.TokenText(token))) {
      text = tokenizer_.TokenText(token);
    }
    echo_.remove_prefix(std::min(text.size(), echo_.size()));
    return text;
  }

  const Tokenizer& tokenizer_;
  int64_t offset_;
  std::string_view echo_;  // what of it has no token yet
  Json::Array tokens_;
  Json::Array logprobs_;
  Json::Array top_;
  Json::Array offsets_;
};

TextFormat::TextFormat(TextFormatOptions options)
    : options_(std::move(options)),
      offsets_(options_.prompts.size() * static_cast<size_t>(options_.choices_per_prompt)) {}

Json TextFormat::Choice(size_t choice, Json text, Json logprobs, Json finish_reason) const {
  return Json::Object{{"text", std::move(text)},
                      {"index", static_cast<uint64_t>(choice)},
                      {"logprobs", std::move(logprobs)},
                      {"finish_reason", std::move(finish_reason)}};
}

Json TextFormat::WholeLogprobs(size_t choice, const AnsweredChoice& result) const {
  if (!options_.has_logprobs) return {};
  const bool has_echo = !options_.echoes.empty();
  Legacy logprobs(
      *options_.tokenizer, 0,
      has_echo ? std::string_view(options_.echoes[PromptOf(choice)]) : std::string_view());
  if (has_echo) logprobs.AddFirst(options_.prompts[PromptOf(choice)].front());
  for (const TokenScores& scores : result.prompt_scores) logprobs.Add(scores);
  for (const TokenScores& scores : result.scores) logprobs.Add(scores);
  return std::move(logprobs).ToJson();
}

Json TextFormat::StreamedLogprobs(size_t choice, std::span<const TokenScores> scores) {
  if (!options_.has_logprobs || scores.empty()) return {};
  Legacy logprobs(*options_.tokenizer, offsets_[choice]);
  for (const TokenScores& token : scores) logprobs.Add(token);
  offsets_[choice] = logprobs.offset();
  return std::move(logprobs).ToJson();
}

Json TextFormat::Whole(std::span<const AnsweredChoice> results) {
  Json::Array choices;
  for (size_t i = 0; i < results.size(); ++i) {
    std::string text = options_.echoes.empty() ? "" : options_.echoes[PromptOf(i)];
    text += results[i].text;
    choices.push_back(Choice(i, std::move(text), WholeLogprobs(i, results[i]),
                             FinishReasonName(results[i].finish)));
  }
  const GenerationStats total = TotalStats(results, options_.choices_per_prompt);
  Json completion = Envelope(options_.head, "text_completion");
  completion.Set("choices", std::move(choices));
  completion.Set("usage", UsageJson(total, ReasoningTokens(results)));
  completion.Set("timings", TimingsJson(total));
  return completion;
}

std::string TextFormat::Chunk(Json choice, Json timings) const {
  Json chunk = Envelope(options_.head, "text_completion");
  chunk.Set("choices", Json::Array{std::move(choice)});
  if (options_.includes_usage) chunk.Set("usage", nullptr);
  if (!timings.is_null()) chunk.Set("timings", std::move(timings));
  return SseEvent(chunk);
}

std::string TextFormat::Begin(const PromptProgress&) {
  std::string events;
  if (options_.echoes.empty()) return events;
  for (size_t i = 0; i < offsets_.size(); ++i) {
    events += Chunk(Choice(i, options_.echoes[PromptOf(i)], nullptr, nullptr));
  }
  return events;
}

std::string TextFormat::Part(size_t choice, const AnswerPart& part, const AnswerMessage&,
                             std::span<const TokenScores> scores) {
  return Chunk(Choice(choice, part.text, StreamedLogprobs(choice, scores), nullptr));
}

std::string TextFormat::ChoiceEnd(size_t choice, const AnsweredChoice& result,
                                  std::span<const TokenScores> scores) {
  Json logprobs = StreamedLogprobs(choice, scores);
  Json timings;
  if (!options_.includes_usage) timings = TimingsJson(result.stats);
  return Chunk(Choice(choice, "", std::move(logprobs), FinishReasonName(result.finish)),
               std::move(timings));
}

std::string TextFormat::End(std::span<const AnsweredChoice> results) {
  std::string events;
  if (options_.includes_usage) {
    const GenerationStats total = TotalStats(results, options_.choices_per_prompt);
    Json chunk = Envelope(options_.head, "text_completion");
    chunk.Set("choices", Json::Array());
    chunk.Set("usage", UsageJson(total, ReasoningTokens(results)));
    chunk.Set("timings", TimingsJson(total));
    events = SseEvent(chunk);
  }
  return events.append(kSseDone);
}

}  // namespace kvasir
