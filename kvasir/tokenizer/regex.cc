#include "kvasir/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "kvasir/tokenizer/regex_syntax.h"
#include "kvasir/tokenizer/utf8.h"

namespace kvasir {
namespace {

// The longest pattern in public tokenizers has about 500 bytes.
constexpr size_t kMaxPatternBytes = 16 * 1024;
constexpr uint32_t kHeapLimitKib = 32 * 1024;
// Steps of one attempt: a constant for short texts, and some per byte because a legitimate
// \s*[\r\n]+ walks back through a whole run of blanks.
constexpr size_t kBaseSteps = 20'000;
constexpr size_t kStepsPerByte = 8;
constexpr size_t kMaxSteps = 2'000'000'000;

std::string Quoted(std::string_view pattern) {
  constexpr size_t kShownBytes = 80;
  std::string quoted = "regex '" + ToValidUtf8(pattern.substr(0, kShownBytes));
  return quoted + (pattern.size() > kShownBytes ? "...'" : "'");
}

}  // namespace

struct Regex::Code {
  explicit Code(pcre2_code* compiled) : code(compiled) {}
  ~Code() { pcre2_code_free(code); }
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  pcre2_code* const code;
};

struct Regex::Scanner::State {
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  ~State() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
  }
};

Result<Regex> Regex::Compile(std::string_view pattern) {
  if (pattern.size() > kMaxPatternBytes) {
    return {ErrorCode::kUnsupported,
            Quoted(pattern) + " is longer than " + std::to_string(kMaxPatternBytes) + " bytes"};
  }
  Result<std::string> translated = TranslateRegexSyntax(pattern);
  if (!translated.ok()) return WithContext(translated.error(), Quoted(pattern));
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated->data()),
                                   translated->size(), options, &error, &error_offset, nullptr);
  if (code == nullptr) {
    std::array<PCRE2_UCHAR, 256> reason{};
    pcre2_get_error_message(error, reason.data(), reason.size());
    return {ErrorCode::kCorrupt,
            Quoted(pattern) + " does not compile: " + reinterpret_cast<const char*>(reason.data())};
  }
  // Without JIT support, or where it gives up, matching is interpreted: slower, same result.
  (void)pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
  return Regex(std::make_shared<const Code>(code));
}

Regex::Scanner::Scanner(const Regex& regex)
    : code_(regex.code_), state_(std::make_unique<State>()) {
  state_->data = pcre2_match_data_create_from_pattern(code_->code, nullptr);
  state_->context = pcre2_match_context_create(nullptr);
  if (state_->context != nullptr) pcre2_set_heap_limit(state_->context, kHeapLimitKib);
}

Regex::Scanner::~Scanner() = default;

void Regex::Scanner::FindAll(std::string_view text, std::vector<TextSpan>* matches) {
  if (state_->data == nullptr || state_->context == nullptr) return;
  const size_t steps = std::min(kBaseSteps + kStepsPerByte * text.size(), kMaxSteps);
  pcre2_set_match_limit(state_->context, static_cast<uint32_t>(steps));
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  size_t position = 0;
  // As in the reference: an empty match may not stand where the last match ended.
  std::optional<size_t> last_end;
  while (position <= text.size()) {
    int found = pcre2_match(code_->code, subject, text.size(), position, PCRE2_NO_UTF_CHECK,
                            state_->data, state_->context);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) {
      found = pcre2_match(code_->code, subject, text.size(), position,
                          PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, state_->data, state_->context);
    }
    if (found < 0) return;
    const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(state_->data);
    const TextSpan match{bounds[0], bounds[1]};
    if (match.begin < position || match.end < match.begin) return;
    if (match.begin == match.end && match.end == last_end) {
      if (position == text.size()) return;
      position += DecodeUtf8(text, position).size_bytes;
      continue;
    }
    matches->push_back(match);
    position = match.end;
    last_end = match.end;
  }
}

}  // namespace kvasir
