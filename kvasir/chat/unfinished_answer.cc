#include "kvasir/chat/unfinished_answer.h"

#include <string_view>
#include <utility>

namespace kvasir {
namespace {

// Of characters for private use, which no filter of text takes for blanks. Where a request has them
// as well, the last one counts.
constexpr std::string_view kMark = "\uE000end of the unfinished answer\uE001";

bool IsAssistants(const Json& message) {
  const Json* const role = message.Find("role");
  return role != nullptr && *role == Json("assistant");
}

}  // namespace

bool EndsUnfinished(const Json& messages) {
  if (!messages.is_array() || messages.as_array().empty()) return false;
  const Json& last = messages.as_array().back();
  if (!IsAssistants(last)) return false;
  const Json* const calls = last.Find("tool_calls");
  if (calls != nullptr && calls->is_array() && !calls->as_array().empty()) return false;
  const Json* const content = last.Find("content");
  return content != nullptr && content->is_string() && !content->as_string().empty();
}

Result<Json> MarkEnd(Json messages) {
  Json::Array& all = messages.as_array();
  if (all.size() > 1 && IsAssistants(all[all.size() - 2])) {
    return {ErrorCode::kInvalidArgument,
            "the last two messages are the assistant's; an answer can go on with one only"};
  }
  std::string text = all.back().Find("content")->as_string();
  text.append(kMark);
  all.back().Set("content", std::move(text));
  return messages;
}

Result<TextSegments> UpToMark(TextSegments prompt) {
  while (!prompt.empty()) {
    TextSegment& last = prompt.back();
    const size_t at = last.trusted ? std::string::npos : last.text.rfind(kMark);
    if (at != std::string::npos) {
      last.text.resize(at);
      if (at == 0) prompt.pop_back();
      return prompt;
    }
    prompt.pop_back();
  }
  return {ErrorCode::kInvalidArgument,
          "the chat template leaves out the assistant's last message, so no answer can go on with "
          "it"};
}

}  // namespace kvasir
