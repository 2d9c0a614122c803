// ResponsesFormat: OpenAI's response object, whole and as numbered events.
// Deliberately one part per message and per thought: nothing asks for more.
#ifndef KVASIR_SERVER_RESPONSES_FORMAT_H_
#define KVASIR_SERVER_RESPONSES_FORMAT_H_

#include <optional>
#include <string>

#include "kvasir/server/answer_format.h"
#include "kvasir/server/answer_json.h"

namespace kvasir {

// The members of a request that its response says again, or what they are if it lacks them.
Json EchoedMembers(const Json& body);

struct ResponsesFormatOptions {
  AnswerHead head;
  std::string message_id;    // "msg_..."
  std::string reasoning_id;  // "rs_..."
  Json echoed = EchoedMembers(Json::Object());
  const Tokenizer* tokenizer = nullptr;  // null: no log-probabilities are asked for
};

class ResponsesFormat final : public AnswerFormat {
 public:
  explicit ResponsesFormat(ResponsesFormatOptions options) : options_(std::move(options)) {}

  Json Whole(std::span<const AnsweredChoice> results) override;
  std::string Begin(const PromptProgress& prompt) override;
  std::string Part(size_t choice, const AnswerPart& part, const AnswerMessage& message,
                   std::span<const TokenScores> scores) override;
  std::string ChoiceEnd(size_t choice, const AnsweredChoice& result,
                        std::span<const TokenScores> scores) override;
  std::string End(std::span<const AnsweredChoice> results) override;
  std::string Error(const ApiError& error) override;

 private:
  // What one item of the output is: thoughts, text, or a call.
  struct Item {
    AnswerItem answer;
    std::string id;
    Json::Array logprobs;
  };

  Json Response(std::string_view status, Json output) const;
  Json Finished(const AnsweredChoice& result, Json output) const;
  Json Output(const AnsweredChoice& result) const;
  // Of the tokens of a text; empty where nobody asked.
  Json::Array LogprobsOf(std::span<const TokenScores> scores) const;
  // To the text that is being streamed, if any is.
  void AddLogprobs(std::span<const TokenScores> scores);
  static Json ItemJson(const Item& item, std::string_view status);
  std::string OpenItem(Item item);
  std::string CloseItem(std::string_view status);
  // An answer may have several texts and thoughts, each with an id of its own. `before`: how many
  // of its kind.
  Item NewItem(AnswerItem answer, size_t before) const;
  // One event; `members` follow type and sequence_number.
  std::string Event(std::string_view type, Json::Object members);
  // The members that say which item an event is about, and which part of it.
  Json::Object Place() const;
  Json::Object PartPlace() const;

  const ResponsesFormatOptions options_;
  int64_t sequence_number_ = 0;
  std::optional<Item> open_;
  Json::Array output_;  // items that were streamed
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_RESPONSES_FORMAT_H_
