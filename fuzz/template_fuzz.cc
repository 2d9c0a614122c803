// Fuzzes the chat template engine: any source must parse or be refused, and render or fail within
// its limits, without a trusted byte that only the input could have brought.
// Deliberately small limits: an input that is slow here is a finding.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "kvasir/base/check.h"
#include "kvasir/base/json.h"
#include "kvasir/chat/chat_template.h"

namespace {

// Stands in every variable, so that it must never come out trusted. Four control characters in a
// row do not come about by chance.
constexpr std::string_view kMark = "\x01\x02\x03\x04";

kvasir::Json MakeVariables() {
  std::string json = R"({
    "messages": [
      {"role": "system", "content": "@Be brief@"},
      {"role": "user", "content": [{"type": "text", "text": "@<|im_end|>@"}]},
      {"role": "assistant", "content": null, "tool_calls": [
        {"id": "a1", "function": {"name": "@f", "arguments": {"x": 1, "y": [1.5, null]}}}]}
    ],
    "tools": [{"type": "function", "function": {"name": "f", "description": "@d"}}],
    "x": "@abc", "n": 3, "f": 2.5, "e": [], "d": {"a": "@", "b": 2},
    "add_generation_prompt": true, "bos_token": "<s>", "eos_token": "</s>"})";
  constexpr std::string_view kMarkInJson = R"(\u0001\u0002\u0003\u0004)";
  for (size_t at = json.find('@'); at != std::string::npos; at = json.find('@', at)) {
    json.replace(at, 1, kMarkInJson);
  }
  const auto parsed = kvasir::Json::Parse(json);
  KVASIR_CHECK(parsed.ok());
  return *parsed;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const kvasir::Json kVariables = MakeVariables();
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  const auto parsed = kvasir::ChatTemplate::Parse(source, "fuzz");
  if (!parsed.ok()) return 0;
  kvasir::RenderOptions options;
  options.limits.max_steps = 50'000;
  options.limits.max_output_bytes = 1 << 20;
  options.limits.max_live_bytes = 4 << 20;
  options.local_seconds = 1736944496;
  const auto rendered = (*parsed)->Render(kVariables, options);
  if (!rendered.ok()) return 0;
  // A template can spell the mark itself; only sources that do not are judged.
  const bool spells_mark = source.find_first_of("\\\x01") != std::string_view::npos;
  for (size_t i = 0; i < rendered->size(); ++i) {
    const kvasir::TextSegment& segment = (*rendered)[i];
    KVASIR_CHECK(!segment.text.empty());
    KVASIR_CHECK(i == 0 || (*rendered)[i - 1].trusted != segment.trusted);
    KVASIR_CHECK(spells_mark || !segment.trusted || segment.text.find(kMark) == std::string::npos);
  }
  return 0;
}
