// AnswerFormat: how one API writes an answer: as a whole, or as the events of a stream.
// Deliberately without sockets: every function returns what to send.
#ifndef KVASIR_SERVER_ANSWER_FORMAT_H_
#define KVASIR_SERVER_ANSWER_FORMAT_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "kvasir/base/json.h"
#include "kvasir/engine/generation.h"
#include "kvasir/server/answer_message.h"
#include "kvasir/server/api_error.h"
#include "kvasir/server/completion_service.h"

namespace kvasir {

// One object per answer. A stream is Begin, then Part and ChoiceEnd of all choices, then End; or at
// any point after Begin, Error. Scores belong to the tokens since the last call for that choice.
class AnswerFormat {
 public:
  virtual ~AnswerFormat() = default;

  // The body of a whole answer: one result per choice.
  virtual Json Whole(std::span<const AnsweredChoice> results) = 0;

  virtual std::string Begin(const PromptProgress& prompt) = 0;
  // `message`: the choice's so far, with this part.
  virtual std::string Part(size_t choice, const AnswerPart& part, const AnswerMessage& message,
                           std::span<const TokenScores> scores) = 0;
  virtual std::string ChoiceEnd(size_t choice, const AnsweredChoice& result,
                                std::span<const TokenScores> scores) = 0;
  virtual std::string End(std::span<const AnsweredChoice> results) = 0;
  virtual std::string Error(const ApiError& error) = 0;

  // Of an error before anything was sent.
  virtual ErrorStyle error_style() const { return ErrorStyle::kOpenAi; }
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_ANSWER_FORMAT_H_
