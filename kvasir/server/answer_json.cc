#include "kvasir/server/answer_json.h"

#include <algorithm>
#include <random>
#include <utility>

#include "kvasir/tokenizer/token_name.h"

namespace kvasir {
namespace {

constexpr double kLeastLogprob = -9999.0;

double PerToken(double ms, int64_t tokens) {
  return tokens > 0 ? ms / static_cast<double>(tokens) : 0.0;
}

Json LogprobJson(const Tokenizer& tokenizer, const TokenLogprob& entry) {
  const std::string piece = TokenPiece(tokenizer, entry.token);
  Json::Array bytes;
  bytes.reserve(piece.size());
  for (const char byte : piece) bytes.push_back(static_cast<int>(static_cast<uint8_t>(byte)));
  return Json::Object{
      {"token", piece}, {"logprob", FiniteLogprob(entry.logprob)}, {"bytes", std::move(bytes)}};
}

}  // namespace

std::string NewId(std::string_view prefix) {
  static constexpr char kDigits[] = "0123456789abcdefghijklmnopqrstuv";
  std::random_device device;
  std::string id(prefix);
  for (int part = 0; part < 4; ++part) {
    uint32_t bits = device();
    for (int i = 0; i < 6; ++i, bits >>= 5) id += kDigits[bits & 31];
  }
  return id;
}

Json Envelope(const AnswerHead& head, std::string_view object) {
  return Json::Object{{"id", head.id},
                      {"object", object},
                      {"created", head.created},
                      {"model", head.model},
                      {"system_fingerprint", "kvasir"}};
}

GenerationStats TotalStats(std::span<const AnsweredChoice> results, int64_t per_prompt) {
  GenerationStats total;
  for (size_t i = 0; i < results.size(); ++i) {
    const GenerationStats& stats = results[i].stats;
    if (i % static_cast<size_t>(std::max<int64_t>(per_prompt, 1)) == 0) {
      total.prompt_tokens += stats.prompt_tokens;
      total.cached_tokens += stats.cached_tokens;
      total.known_prefix_tokens += stats.known_prefix_tokens;
      total.prefill_ms += stats.prefill_ms;  // for all answers of the prompt
    }
    total.generated_tokens += stats.generated_tokens;
    total.drafted_tokens += stats.drafted_tokens;
    total.accepted_drafts += stats.accepted_drafts;
    total.decode_ms += stats.decode_ms;
  }
  return total;
}

int64_t ReasoningTokens(std::span<const AnsweredChoice> results) {
  int64_t tokens = 0;
  for (const AnsweredChoice& result : results) tokens += result.message.reasoning_tokens;
  return tokens;
}

Json UsageJson(const GenerationStats& stats, int64_t reasoning_tokens) {
  return Json::Object{
      {"prompt_tokens", stats.prompt_tokens},
      {"completion_tokens", stats.generated_tokens},
      {"total_tokens", stats.prompt_tokens + stats.generated_tokens},
      {"prompt_tokens_details", Json::Object{{"cached_tokens", stats.cached_tokens}}},
      {"completion_tokens_details", Json::Object{{"reasoning_tokens", reasoning_tokens}}}};
}

Json TimingsJson(const GenerationStats& stats) {
  const int64_t evaluated = stats.prompt_tokens - stats.cached_tokens;
  Json timings =
      Json::Object{{"cache_n", stats.cached_tokens},
                   {"prompt_n", evaluated},
                   {"prompt_ms", stats.prefill_ms},
                   {"prompt_per_token_ms", PerToken(stats.prefill_ms, evaluated)},
                   {"prompt_per_second", stats.prefill_tokens_per_second()},
                   {"predicted_n", stats.generated_tokens},
                   {"predicted_ms", stats.decode_ms},
                   {"predicted_per_token_ms", PerToken(stats.decode_ms, stats.generated_tokens)},
                   {"predicted_per_second", stats.decode_tokens_per_second()}};
  if (stats.drafted_tokens > 0) {
    timings.Set("draft_n", stats.drafted_tokens);
    timings.Set("draft_n_accepted", stats.accepted_drafts);
  }
  return timings;
}

double FiniteLogprob(double logprob) { return std::max(logprob, kLeastLogprob); }

Json ChatLogprobsJson(const Tokenizer& tokenizer, std::span<const TokenScores> scores) {
  Json::Array content;
  content.reserve(scores.size());
  for (const TokenScores& token : scores) {
    Json entry = LogprobJson(tokenizer, token.token);
    Json::Array top;
    for (const TokenLogprob& other : token.top) top.push_back(LogprobJson(tokenizer, other));
    entry.Set("top_logprobs", std::move(top));
    content.push_back(std::move(entry));
  }
  return Json::Object{{"content", std::move(content)}, {"refusal", nullptr}};
}

std::string SseEvent(const Json& data) { return "data: " + data.Dump() + "\n\n"; }

std::string SseTypedEvent(const Json& data) {
  return "event: " + data.Find("type")->as_string() + "\n" + SseEvent(data);
}

std::string SseComment(std::string_view text) { return ": " + std::string(text) + "\n\n"; }

}  // namespace kvasir
