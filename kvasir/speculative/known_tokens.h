// KnownTokens: the tokens of a sequence so far, prompt and answer, as one list.
// Deliberately a view: whoever holds the tokens keeps them.
#ifndef KVASIR_SPECULATIVE_KNOWN_TOKENS_H_
#define KVASIR_SPECULATIVE_KNOWN_TOKENS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kvasir/base/check.h"
#include "kvasir/base/token.h"

namespace kvasir {

struct KnownTokens {
  std::span<const Token> prompt;
  std::span<const Token> answer;

  int64_t size() const { return static_cast<int64_t>(prompt.size() + answer.size()); }
  // REQUIRES: 0 <= position < size().
  Token operator[](int64_t position) const {
    const auto at = static_cast<size_t>(position);
    return at < prompt.size() ? prompt[at] : answer[at - prompt.size()];
  }
  // REQUIRES: 0 <= begin <= end <= size().
  std::vector<Token> Copy(int64_t begin, int64_t end) const {
    KVASIR_CHECK(0 <= begin && begin <= end && end <= size());
    std::vector<Token> tokens;
    tokens.reserve(static_cast<size_t>(end - begin));
    for (int64_t at = begin; at < end; ++at) tokens.push_back((*this)[at]);
    return tokens;
  }
};

}  // namespace kvasir

#endif  // KVASIR_SPECULATIVE_KNOWN_TOKENS_H_
