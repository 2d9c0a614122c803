// TextFormat: text_completion, whole and streamed, with the legacy form of log-probabilities.
// Deliberately the same object name in streams, as OpenAI's.
#ifndef KVASIR_SERVER_TEXT_FORMAT_H_
#define KVASIR_SERVER_TEXT_FORMAT_H_

#include <vector>

#include "kvasir/server/answer_format.h"
#include "kvasir/server/answer_json.h"

namespace kvasir {

struct TextFormatOptions {
  AnswerHead head;
  int64_t choices_per_prompt = 1;
  std::vector<std::vector<Token>> prompts;
  std::vector<std::string> echoes;  // one per prompt; empty: the prompts are not echoed
  bool includes_usage = false;
  bool has_logprobs = false;
  const Tokenizer* tokenizer = nullptr;  // not null
};

class TextFormat final : public AnswerFormat {
 public:
  explicit TextFormat(TextFormatOptions options);

  Json Whole(std::span<const AnsweredChoice> results) override;
  std::string Begin(const PromptProgress& prompt) override;
  std::string Part(size_t choice, const AnswerPart& part, const AnswerMessage& message,
                   std::span<const TokenScores> scores) override;
  std::string ChoiceEnd(size_t choice, const AnsweredChoice& result,
                        std::span<const TokenScores> scores) override;
  std::string End(std::span<const AnsweredChoice> results) override;
  std::string Error(const ApiError& error) override { return SseEvent(ErrorJson(error)); }

 private:
  class Legacy;

  size_t PromptOf(size_t choice) const {
    return choice / static_cast<size_t>(options_.choices_per_prompt);
  }
  Json Choice(size_t choice, Json text, Json logprobs, Json finish_reason) const;
  std::string Chunk(Json choice, Json timings = {}) const;
  Json WholeLogprobs(size_t choice, const AnsweredChoice& result) const;
  Json StreamedLogprobs(size_t choice, std::span<const TokenScores> scores);

  const TextFormatOptions options_;
  std::vector<int64_t> offsets_;  // per choice: characters streamed
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_TEXT_FORMAT_H_
