// TokenHistory: the tokens before the one to be chosen, which penalties look at.
// Deliberately borrowed spans: a rollback is a shorter span, never a state to restore.
#ifndef KVASIR_SAMPLING_TOKEN_HISTORY_H_
#define KVASIR_SAMPLING_TOKEN_HISTORY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kvasir/base/token.h"

namespace kvasir {

class DryBreakers;
struct MirostatState;
class TokenConstraint;

// Only read when the options need it.
struct TokenHistory {
  std::span<const Token> prompt = {};
  std::span<const Token> output = {};
  // Tokens after the output that are not committed yet: they count as output.
  std::span<const Token> drafts = {};
  // Where repetitions end, for DRY; nullptr: nowhere.
  const DryBreakers* breakers = nullptr;
  // Read and advanced by mirostat; nullptr: every token is the first one to it.
  MirostatState* mirostat = nullptr;
  // Stands behind the output and the drafts: the sampler asks it for a mask and leaves it there,
  // whoever samples accepts the token. nullptr: any token may come.
  TokenConstraint* constraint = nullptr;

  size_t size() const { return prompt.size() + output.size() + drafts.size(); }

  // The history cut to its last `tokens` tokens; -1: all of it.
  TokenHistory Last(int64_t tokens) const {
    TokenHistory last = *this;
    if (tokens < 0) return last;
    size_t rest = static_cast<size_t>(tokens);
    for (std::span<const Token>* part : {&last.drafts, &last.output, &last.prompt}) {
      *part = part->last(std::min(rest, part->size()));
      rest -= part->size();
    }
    return last;
  }
};

}  // namespace kvasir

#endif  // KVASIR_SAMPLING_TOKEN_HISTORY_H_
