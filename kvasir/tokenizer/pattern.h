// Pattern: the {"String": ...} or {"Regex": ...} of Split and Replace, as a cutter of text.
// Deliberately unaware of what is done with the parts.
#ifndef KVASIR_TOKENIZER_PATTERN_H_
#define KVASIR_TOKENIZER_PATTERN_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/tokenizer/regex.h"

namespace kvasir {

// A part of a text: a match or the gap between two.
struct TextPart {
  TextSpan span;
  bool is_match = false;
};

// The matches and the gaps around them, which together cover a text of `size` bytes.
void PartsOfMatches(const std::vector<TextSpan>& matches, size_t size,
                    std::vector<TextPart>* parts);

// Immutable and thread-safe.
class Pattern {
 public:
  // Reads the member "pattern" of a component. ERRORS: kCorrupt, kUnsupported, naming the field.
  static Result<Pattern> FromJson(const Json& component);
  static Result<Pattern> FromRegex(std::string_view regex);

  // Scratch memory for many short texts. THREADS: one thread at a time.
  class Finder {
   public:
    // REQUIRES: `pattern` outlives the finder.
    explicit Finder(const Pattern& pattern);
    // Appends all matches in `text`, which must be valid UTF-8.
    void FindAll(std::string_view text, std::vector<TextSpan>* matches);

   private:
    const Pattern& pattern_;
    std::optional<Regex::Scanner> scanner_;
  };

 private:
  Pattern() = default;
  std::string literal_;
  std::optional<Regex> regex_;  // unset: the literal
};

}  // namespace kvasir

#endif  // KVASIR_TOKENIZER_PATTERN_H_
