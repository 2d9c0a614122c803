// Tool calls that are not JSON: Qwen's XML, GLM's tags, Gemma's braces. Read when complete; those
// in Python are python_call.h's. Deliberately all or nothing: text that is no such call stays text.
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
// Of GLM's calls.
inline constexpr std::string_view kGlmKeyOpen = "<arg_key>";
inline constexpr std::string_view kGlmKeyClose = "</arg_key>";
inline constexpr std::string_view kGlmValueOpen = "<arg_value>";
inline constexpr std::string_view kGlmValueClose = "</arg_value>";

struct GlmCall {
  std::optional<CallText> call;
  bool ends_in_value = false;  // more of the text may make it one
};
// "f<arg_key>k</arg_key><arg_value>v</arg_value>", blanks around the parts, but not around a value,
// are none of it. Without arguments it is a call only of one of `tools`, as for ParseQwenXmlCall.
GlmCall ParseGlmCall(std::string_view text, const Json& tools);
// "call:f{k:<|"|>v<|"|>,n:3}"
std::optional<CallText> ParseGemmaCall(std::string_view text);

}  // namespace kvasir

#endif  // KVASIR_CHAT_CALL_TEXT_H_
