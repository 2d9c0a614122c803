// MessagesFormat: Anthropic's message, whole and as its events in their order.
// Deliberately one block of text per message: there is no thinking and there are no tools yet.
#ifndef KVASIR_SERVER_MESSAGES_FORMAT_H_
#define KVASIR_SERVER_MESSAGES_FORMAT_H_

#include "kvasir/server/answer_format.h"
#include "kvasir/server/answer_json.h"

namespace kvasir {

class MessagesFormat final : public AnswerFormat {
 public:
  explicit MessagesFormat(AnswerHead head) : head_(std::move(head)) {}

  Json Whole(std::span<const GenerationResult> results) override;
  std::string Begin(const PromptProgress& prompt) override;
  std::string Text(size_t choice, std::string_view text,
                   std::span<const TokenScores> scores) override;
  std::string ChoiceEnd(size_t choice, const GenerationResult& result,
                        std::span<const TokenScores> scores) override;
  std::string End(std::span<const GenerationResult> results) override;
  std::string Error(const ApiError& error) override;
  ErrorStyle error_style() const override { return ErrorStyle::kAnthropic; }

 private:
  Json Message(Json content, Json stop_reason, Json stop_sequence, Json usage) const;

  const AnswerHead head_;
  bool is_block_open_ = false;
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_MESSAGES_FORMAT_H_
