// MessagesFormat: Anthropic's message, whole and as its events in their order.
// Deliberately without signatures: thoughts that come back are taken as they are.
#ifndef KVASIR_SERVER_MESSAGES_FORMAT_H_
#define KVASIR_SERVER_MESSAGES_FORMAT_H_

#include <optional>

#include "kvasir/server/answer_format.h"
#include "kvasir/server/answer_json.h"

namespace kvasir {

class MessagesFormat final : public AnswerFormat {
 public:
  explicit MessagesFormat(AnswerHead head) : head_(std::move(head)) {}

  Json Whole(std::span<const AnsweredChoice> results) override;
  std::string Begin(const PromptProgress& prompt) override;
  std::string Part(size_t choice, const AnswerPart& part, const AnswerMessage& message,
                   std::span<const TokenScores> scores) override;
  std::string ChoiceEnd(size_t choice, const AnsweredChoice& result,
                        std::span<const TokenScores> scores) override;
  std::string End(std::span<const AnsweredChoice> results) override;
  std::string Error(const ApiError& error) override;
  ErrorStyle error_style() const override { return ErrorStyle::kAnthropic; }

 private:
  Json Message(Json content, Json stop_reason, Json stop_sequence, Json usage) const;

  // Ends the open block, if any.
  std::string CloseBlock();
  std::string OpenBlock(AnswerPart::Kind kind, Json block);

  const AnswerHead head_;
  std::optional<AnswerPart::Kind> open_;  // the kind of the open block
  int64_t blocks_ = 0;                    // begun so far
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_MESSAGES_FORMAT_H_
