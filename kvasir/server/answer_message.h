// AnswerMessage: an answer by its items: thoughts, text, tool calls.
// Deliberately without any API's JSON: the formats write it.
#ifndef KVASIR_SERVER_ANSWER_MESSAGE_H_
#define KVASIR_SERVER_ANSWER_MESSAGE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvasir/chat/answer_part.h"
#include "kvasir/engine/generation.h"

namespace kvasir {

// A run of one kind.
struct AnswerItem {
  AnswerPart::Kind kind = AnswerPart::Kind::kText;  // kText, kReasoning or kCall
  // Thoughts, text, or a call's arguments: JSON as the model wrote it, cut off where the answer
  // was.
  std::string text;
  std::string call_id;
  std::string name;       // of the function that is called
  size_t scores_end = 0;  // of a text: where its scores end among those of all texts

  bool is(AnswerPart::Kind other) const { return kind == other; }
};

struct AnswerMessage {
  std::vector<AnswerItem> items;  // as the model wrote them
  int64_t reasoning_tokens = 0;

  // `call_id`: of the call, if the part begins one. `scores`: there are of the texts so far.
  void Add(const AnswerPart& part, std::string call_id, size_t scores) {
    const bool is_arguments = part.kind == AnswerPart::Kind::kArguments;
    const bool begins = part.kind == AnswerPart::Kind::kCall ||
                        (!is_arguments && (items.empty() || !items.back().is(part.kind)));
    // The scores of what opens a call, too, which may have been text.
    if (!items.empty() && items.back().is(AnswerPart::Kind::kText))
      items.back().scores_end = scores;
    if (begins) items.push_back({part.kind, "", std::move(call_id), "", scores});
    const bool is_call = part.kind == AnswerPart::Kind::kCall;
    (is_call ? items.back().name : items.back().text) += part.text;
  }

  size_t CountOf(AnswerPart::Kind kind) const {
    return static_cast<size_t>(
        std::ranges::count_if(items, [&](const AnswerItem& item) { return item.is(kind); }));
  }
  bool has_calls() const { return CountOf(AnswerPart::Kind::kCall) > 0; }
  // Of all items of the kind.
  std::string TextOf(AnswerPart::Kind kind) const {
    std::string text;
    for (const AnswerItem& item : items) {
      if (item.is(kind)) text += item.text;
    }
    return text;
  }
};

// What was generated, with what it means. `text` is the raw one.
struct AnsweredChoice : GenerationResult {
  AnswerMessage message;

  // The model ended its answer, and asks for tools.
  bool asks_for_tools() const { return finish == FinishReason::kStop && message.has_calls(); }
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_ANSWER_MESSAGE_H_
