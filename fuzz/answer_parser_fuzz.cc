// Fuzzes answers: whatever a model writes, in whatever pieces, is read the same way.
// Deliberately no check of what is a call: the tests compare that with recorded answers.
//
// Input: a byte that chooses the family, one that chooses the sizes of the pieces, the answer.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/base/json.h"
#include "kvasir/chat/answer_parser.h"
#include "kvasir/chat/python_call.h"

namespace {

using kvasir::AnswerPart;

// Neighbours of one kind joined.
kvasir::AnswerParts Joined(const kvasir::AnswerParserOptions& options, std::string_view text,
                           size_t piece) {
  kvasir::AnswerParser parser(options);
  kvasir::AnswerParts joined;
  const auto add = [&](kvasir::AnswerParts parts) {
    for (AnswerPart& part : parts) {
      const bool goes_on = !joined.empty() && joined.back().kind == part.kind &&
                           part.kind != AnswerPart::Kind::kCall;
      if (goes_on) {
        joined.back().text += part.text;
      } else {
        joined.push_back(std::move(part));
      }
    }
  };
  for (size_t at = 0; at < text.size(); at += piece) add(parser.Push(text.substr(at, piece)));
  add(parser.Finish());
  return joined;
}

// Whether an integer may be in it that Json::Parse takes for too large, whose digits calls keep.
bool HasLongInteger(std::string_view text) {
  constexpr size_t kDigits = 300;
  size_t digits = 0;
  for (const char c : text) {
    digits = (c >= '0' && c <= '9') || c == '_' ? digits + 1 : 0;
    if (digits > kDigits) return true;
  }
  return false;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  kvasir::AnswerParserOptions options;
  options.dialect.tools = static_cast<kvasir::ToolSyntax>(data[0] % 12);
  options.dialect.think_open = "<think>";
  options.dialect.think_close = "</think>";
  options.reads_thoughts = (data[0] & 64) != 0;
  options.starts_in_thought = options.starts_in_text = (data[0] & 128) != 0;
  options.must_call = (data[1] & 128) != 0;
  const auto tools = kvasir::Json::Parse(
      R"([{"type": "function", "function": {"name": "f"}}, {"function": {"name": "python"}}])");
  options.tools = *tools;
  const auto whole = Joined(options, text, text.size() + 1);
  KVASIR_CHECK(whole == Joined(options, text, 1 + data[1] % 16));
  KVASIR_CHECK(whole == Joined(options, text, 1));
  if (const auto calls = kvasir::ParsePythonCalls(text); calls && !HasLongInteger(text)) {
    for (const kvasir::CallText& call : *calls) {
      KVASIR_CHECK(kvasir::Json::Parse(call.arguments).ok());
    }
  }
  bool has_call = false;
  for (const AnswerPart& part : whole) {
    has_call = has_call || part.kind == AnswerPart::Kind::kCall;
    KVASIR_CHECK(has_call || part.kind != AnswerPart::Kind::kArguments);
    KVASIR_CHECK(!part.text.empty());
  }
  return 0;
}
