#include "kvasir/server/call_marks.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kvasir/base/check.h"

namespace kvasir {
namespace {

static_assert(kCallOpeningPlace.size() == kCallClosingPlace.size());

std::string WithoutPlaces(const std::string& text) {
  std::string rest;
  for (size_t at = 0; at < text.size(); ++at) {
    const std::string_view here = std::string_view(text).substr(at, kCallOpeningPlace.size());
    if (here == kCallOpeningPlace || here == kCallClosingPlace) {
      at += here.size() - 1;
    } else {
      rest += text[at];
    }
  }
  return rest;
}

}  // namespace

bool HasCallMarks(const ChatDialect& dialect) {
  return dialect.has_tools && !dialect.has_calls &&
         (dialect.tools == ToolSyntax::kLfm2 || dialect.tools == ToolSyntax::kOlmo3);
}

// Recursion is bounded by Json::kMaxDepth.
Json WithoutCallMarks(Json value) {
  if (value.is_string()) return WithoutPlaces(value.as_string());
  if (value.is_array()) {
    for (Json& element : value.as_array()) element = WithoutCallMarks(std::move(element));
  } else if (value.is_object()) {
    for (auto& [key, member] : value.as_object()) {
      key = WithoutPlaces(key);
      member = WithoutCallMarks(std::move(member));
    }
  }
  return value;
}

TextSegments WithCallMarks(const TextSegments& prompt, const ChatDialect& dialect) {
  KVASIR_CHECK(HasCallMarks(dialect));
  const bool is_lfm2 = dialect.tools == ToolSyntax::kLfm2;
  const std::string_view opening = CallOpening(dialect.tools);
  const std::string_view closing = is_lfm2 ? "<|tool_call_end|>" : "</function_calls>";
  TextSegments marked;
  const auto add = [&](std::string_view text, bool trusted) {
    if (text.empty()) return;
    if (marked.empty() || marked.back().trusted != trusted) marked.push_back({"", trusted});
    marked.back().text += text;
  };
  for (const TextSegment& segment : prompt) {
    std::string_view rest = segment.text;
    for (;;) {
      const size_t at = std::min(rest.find(kCallOpeningPlace), rest.find(kCallClosingPlace));
      if (segment.trusted || at == rest.npos) break;
      add(rest.substr(0, at), false);
      add(rest.substr(at).starts_with(kCallOpeningPlace) ? opening : closing, true);
      rest.remove_prefix(at + kCallOpeningPlace.size());
    }
    add(rest, segment.trusted);
  }
  return marked;
}

}  // namespace kvasir
