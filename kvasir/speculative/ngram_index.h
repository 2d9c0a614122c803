// NgramIndex: the tokens of one sequence, and where its last few stood before.
// Deliberately only appends: a sequence's known tokens never change.
#ifndef KVASIR_SPECULATIVE_NGRAM_INDEX_H_
#define KVASIR_SPECULATIVE_NGRAM_INDEX_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/base/token.h"

namespace kvasir {

struct NgramOptions {
  int64_t min_match = 2;   // tokens that must be the same
  int64_t max_match = 16;  // more are not compared; of equal matches the latest counts
  // Earlier places that are compared, the latest first: bounds the work where a text says one thing
  // all the time.
  int64_t max_places = 256;

  // ERRORS: kInvalidArgument unless 1 <= min_match <= max_match and 1 <= max_places.
  Status Validate() const;
};

// Takes 8 bytes per token beside the token, and constant time per token appended.
class NgramIndex {
 public:
  // REQUIRES: options.Validate() is OK.
  explicit NgramIndex(NgramOptions options) : options_(options) {}

  void Append(Token token);
  std::span<const Token> tokens() const { return tokens_; }

  struct Match {
    int64_t end = 0;     // what follows begins here; 0: there is no match
    int64_t length = 0;  // tokens before it that are the last tokens; at most max_match
  };
  // The longest earlier occurrence of the last tokens; of equally long ones the latest.
  Match Find() const;
  // What follows a match: up to `count` tokens. A match that reaches into the last tokens goes on
  // with what it repeats. REQUIRES: match.end > 0.
  std::vector<Token> Continue(const Match& match, int64_t count) const;

 private:
  size_t Slot(int64_t end) const;
  void Enter(int64_t end);
  void Grow();

  const NgramOptions options_;
  std::vector<Token> tokens_;
  // Ends of n-grams of min_match tokens, chained by hash, the latest first; 0 ends a chain.
  std::vector<int32_t> latest_;   // by hash; a power of two
  std::vector<int32_t> earlier_;  // by end: the one before in its chain
};

}  // namespace kvasir

#endif  // KVASIR_SPECULATIVE_NGRAM_INDEX_H_
