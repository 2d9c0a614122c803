// AnswerPart: a piece of what a model said, by what it is.
// Deliberately without positions: parts come in order, and calls are counted by who reads them.
#ifndef KVASIR_CHAT_ANSWER_PART_H_
#define KVASIR_CHAT_ANSWER_PART_H_

#include <string>
#include <vector>

namespace kvasir {

struct AnswerPart {
  enum class Kind {
    kText,
    kReasoning,
    kCall,       // a call begins; the text is the function's name
    kArguments,  // a piece of its arguments, which together are the text of a JSON object
  };
  Kind kind = Kind::kText;
  std::string text;

  friend bool operator==(const AnswerPart&, const AnswerPart&) = default;
};

using AnswerParts = std::vector<AnswerPart>;

}  // namespace kvasir

#endif  // KVASIR_CHAT_ANSWER_PART_H_
