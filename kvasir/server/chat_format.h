// ChatFormat: chat.completion and chat.completion.chunk.
// Deliberately with the raw text of calls in no member: what is a call is not content.
#ifndef KVASIR_SERVER_CHAT_FORMAT_H_
#define KVASIR_SERVER_CHAT_FORMAT_H_

#include "kvasir/server/answer_format.h"
#include "kvasir/server/answer_json.h"

namespace kvasir {

struct ChatFormatOptions {
  AnswerHead head;
  int64_t choices = 1;
  // stream_options.include_usage: a last chunk holds the usage, all others "usage": null.
  bool includes_usage = false;
  const Tokenizer* tokenizer = nullptr;  // for logprobs; null: none were asked for
};

class ChatFormat final : public AnswerFormat {
 public:
  explicit ChatFormat(ChatFormatOptions options) : options_(std::move(options)) {}

  Json Whole(std::span<const AnsweredChoice> results) override;
  std::string Begin(const PromptProgress& prompt) override;
  std::string Part(size_t choice, const AnswerPart& part, const AnswerMessage& message,
                   std::span<const TokenScores> scores) override;
  std::string ChoiceEnd(size_t choice, const AnsweredChoice& result,
                        std::span<const TokenScores> scores) override;
  std::string End(std::span<const AnsweredChoice> results) override;
  std::string Error(const ApiError& error) override { return SseEvent(ErrorJson(error)); }

 private:
  Json LogprobsOf(std::span<const TokenScores> scores) const;
  Json Chunk(size_t choice, Json delta, Json logprobs, Json finish_reason) const;

  const ChatFormatOptions options_;
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_CHAT_FORMAT_H_
