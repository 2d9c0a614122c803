// Regex: the regular expressions of tokenizer.json, matched over UTF-8.
// Deliberately no captures and no replacement: a tokenizer only asks where the matches are.
// The engine behind it (PCRE2) is seen by regex.cc only.
#ifndef KVASIR_TOKENIZER_REGEX_H_
#define KVASIR_TOKENIZER_REGEX_H_

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "kvasir/base/result.h"

namespace kvasir {

struct TextSpan {
  size_t begin = 0;
  size_t end = 0;
  friend bool operator==(const TextSpan&, const TextSpan&) = default;
};

// Immutable. THREADS: one Regex may be used by any number of Scanners at once.
class Regex {
 public:
  // `pattern` is in Oniguruma's (Ruby) syntax, as in tokenizer.json; regex_syntax.h says what of it
  // is understood. ERRORS: kCorrupt, kUnsupported; the message quotes the pattern.
  static Result<Regex> Compile(std::string_view pattern);

  class Scanner;

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

// The scratch memory of matching; reuse one for many short texts. THREADS: one thread at a time.
class Regex::Scanner {
 public:
  explicit Scanner(const Regex& regex);
  ~Scanner();
  Scanner(const Scanner&) = delete;
  Scanner& operator=(const Scanner&) = delete;

  // Appends all matches, leftmost first and not overlapping; no empty match right after a match.
  // Work is bounded: where an attempt exceeds a number of steps that grows with the text, or 32 MB
  // of memory, the search ends and the rest of the text counts as unmatched.
  // REQUIRES: valid UTF-8.
  void FindAll(std::string_view text, std::vector<TextSpan>* matches);

 private:
  struct State;
  std::shared_ptr<const Code> code_;
  std::unique_ptr<State> state_;
};

}  // namespace kvasir

#endif  // KVASIR_TOKENIZER_REGEX_H_
