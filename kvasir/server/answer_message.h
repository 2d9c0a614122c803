// AnswerMessage: an answer by its parts: thoughts, text, tool calls.
// Deliberately without any API's JSON: the formats write it.
#ifndef KVASIR_SERVER_ANSWER_MESSAGE_H_
#define KVASIR_SERVER_ANSWER_MESSAGE_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvasir/chat/answer_part.h"
#include "kvasir/engine/generator.h"

namespace kvasir {

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON, as the model wrote it: cut off where the answer was
};

struct AnswerMessage {
  std::string text;
  std::string reasoning;
  std::vector<ToolCall> calls;
  int64_t reasoning_tokens = 0;

  // `call_id`: of the call, if the part begins one.
  void Add(const AnswerPart& part, std::string call_id) {
    switch (part.kind) {
      case AnswerPart::Kind::kText:
        text += part.text;
        return;
      case AnswerPart::Kind::kReasoning:
        reasoning += part.text;
        return;
      case AnswerPart::Kind::kCall:
        calls.push_back({std::move(call_id), part.text, ""});
        return;
      case AnswerPart::Kind::kArguments:
        calls.back().arguments += part.text;
        return;
    }
  }
};

// What was generated, with what it means. `text` is the raw one.
struct AnsweredChoice : GenerationResult {
  AnswerMessage message;

  // The model ended its answer, and asks for tools.
  bool asks_for_tools() const { return finish == FinishReason::kStop && !message.calls.empty(); }
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_ANSWER_MESSAGE_H_
