#include "kvasir/tokenizer/merge_table.h"

#include <bit>

namespace kvasir {

MergeTable::MergeTable(size_t merges) : slots_(std::bit_ceil(2 * merges + 1)) {}

size_t MergeTable::FirstSlot(uint64_t pair) const {
  // The finaliser of MurmurHash3: ids are dense and a plain product would cluster.
  pair ^= pair >> 33;
  pair *= 0xFF51AFD7ED558CCDULL;
  pair ^= pair >> 33;
  return static_cast<size_t>(pair) & (slots_.size() - 1);
}

void MergeTable::Insert(Token left, Token right, Merge merge) {
  const uint64_t pair = PairOf(left, right);
  size_t slot = FirstSlot(pair);
  while (slots_[slot].pair != kFree && slots_[slot].pair != pair) {
    slot = (slot + 1) & (slots_.size() - 1);
  }
  slots_[slot] = {pair, merge};
}

const Merge* MergeTable::Find(Token left, Token right) const {
  const uint64_t pair = PairOf(left, right);
  for (size_t slot = FirstSlot(pair); slots_[slot].pair != kFree;
       slot = (slot + 1) & (slots_.size() - 1)) {
    if (slots_[slot].pair == pair) return &slots_[slot].merge;
  }
  return nullptr;
}

}  // namespace kvasir
