// TokenDistribution: the final probabilities of a position, as exact integer weights.
// Deliberately without what was cut: every entry can be drawn.
#ifndef KVASIR_SAMPLING_TOKEN_DISTRIBUTION_H_
#define KVASIR_SAMPLING_TOKEN_DISTRIBUTION_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kvasir/base/token.h"
#include "kvasir/sampling/logprobs.h"

namespace kvasir {

// Immutable.
class TokenDistribution {
 public:
  struct Entry {
    Token token = 0;
    uint64_t weight = 0;
  };

  // REQUIRES: at least one entry, ascending by token, positive weights with a sum below 2^63.
  explicit TokenDistribution(std::vector<Entry> entries);

  std::span<const Entry> entries() const { return entries_; }
  // 0 for tokens without an entry.
  double Of(Token token) const;
  // The token at `uniform`, in [0, 1), of the mass, walking by id.
  Token Draw(double uniform) const;
  // The `count` likeliest (fewer if there are fewer), ties by lowest id.
  std::vector<TokenLogprob> Top(int64_t count) const;

 private:
  std::vector<Entry> entries_;
  uint64_t total_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_SAMPLING_TOKEN_DISTRIBUTION_H_
