// MergeTable: (left id, right id) -> (rank, merged id), in one flat array.
// Deliberately only a look-up: applying merges to a word is bpe_model.h's.
#ifndef KVASIR_TOKENIZER_MERGE_TABLE_H_
#define KVASIR_TOKENIZER_MERGE_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvasir/base/token.h"

namespace kvasir {

struct Merge {
  uint32_t rank = 0;  // lower ranks merge first
  Token result = -1;
};

class MergeTable {
 public:
  explicit MergeTable(size_t merges = 0);

  // A pair given twice keeps the later merge. REQUIRES: at most as many pairs as announced.
  void Insert(Token left, Token right, Merge merge);
  // nullptr if the pair does not merge.
  const Merge* Find(Token left, Token right) const;

 private:
  struct Slot {
    uint64_t pair = kFree;
    Merge merge;
  };
  static constexpr uint64_t kFree = ~uint64_t{0};

  static uint64_t PairOf(Token left, Token right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  size_t FirstSlot(uint64_t pair) const;

  std::vector<Slot> slots_;  // a power of two, at most half full
};

}  // namespace kvasir

#endif  // KVASIR_TOKENIZER_MERGE_TABLE_H_
