// ResponsesFormat: OpenAI's response object, whole and as numbered events.
// Deliberately one output item, a message with one part: there are no tools yet.
#ifndef KVASIR_SERVER_RESPONSES_FORMAT_H_
#define KVASIR_SERVER_RESPONSES_FORMAT_H_

#include "kvasir/server/answer_format.h"
#include "kvasir/server/answer_json.h"

namespace kvasir {

struct ResponsesFormatOptions {
  AnswerHead head;
  std::string message_id;  // "msg_..."
  // What clients read back, as they sent it or null: instructions, max_output_tokens, metadata,
  // temperature, top_p, ... An object.
  Json echoed;
};

class ResponsesFormat final : public AnswerFormat {
 public:
  explicit ResponsesFormat(ResponsesFormatOptions options) : options_(std::move(options)) {}

  Json Whole(std::span<const GenerationResult> results) override;
  std::string Begin(const PromptProgress& prompt) override;
  std::string Text(size_t choice, std::string_view text,
                   std::span<const TokenScores> scores) override;
  std::string ChoiceEnd(size_t choice, const GenerationResult& result,
                        std::span<const TokenScores> scores) override;
  std::string End(std::span<const GenerationResult> results) override;
  std::string Error(const ApiError& error) override;

 private:
  Json Response(std::string_view status, Json output) const;
  Json Finished(const GenerationResult& result) const;
  Json Item(std::string_view status, Json content) const;
  // One event; `members` follow type and sequence_number.
  std::string Event(std::string_view type, Json::Object members);
  // The members that say which part an event is about.
  Json::Object Part() const;

  const ResponsesFormatOptions options_;
  int64_t sequence_number_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_RESPONSES_FORMAT_H_
