// Tool calls that are not JSON: Qwen's XML, Gemma's braces. Read when complete; those in Python are
// python_call.h's.
// Deliberately all or nothing: text that is no such call stays text.
#ifndef KVASIR_CHAT_CALL_TEXT_H_
#define KVASIR_CHAT_CALL_TEXT_H_

#include <optional>
#include <string>
#include <string_view>

#include "kvasir/base/json.h"

namespace kvasir {

struct CallText {
  std::string name;
  std::string arguments;  // a JSON object
};

// "<function=f><parameter=k>v</parameter></function>", blanks around the parts. `tools`: those of
// the request, as OpenAI has them; their schemas say which values are text.
std::optional<CallText> ParseQwenXmlCall(std::string_view text, const Json& tools);
// "call:f{k:<|"|>v<|"|>,n:3}"
std::optional<CallText> ParseGemmaCall(std::string_view text);

}  // namespace kvasir

#endif  // KVASIR_CHAT_CALL_TEXT_H_
