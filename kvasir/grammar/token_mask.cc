#include "kvasir/grammar/token_mask.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "kvasir/base/check.h"

namespace kvasir {

size_t TokenMask::Count() const {
  size_t count = 0;
  for (const uint64_t word : words_) count += static_cast<size_t>(std::popcount(word));
  return count;
}

bool TokenMask::None() const {
  return std::ranges::all_of(words_, [](uint64_t word) { return word == 0; });
}

void TokenMask::Add(const TokenMask& other) {
  KVASIR_CHECK(other.words_.size() == words_.size());
  for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
}

void TokenMask::Apply(std::span<float> logits) const {
  constexpr float kForbidden = -std::numeric_limits<float>::infinity();
  const size_t known = std::min(logits.size(), vocab_size_);
  for (size_t begin = 0; begin < known; begin += 64) {
    const uint64_t word = words_[begin / 64];
    if (word == ~uint64_t{0}) continue;
    const size_t end = std::min(begin + 64, known);
    for (size_t i = begin; i < end; ++i) {
      if ((word >> (i - begin) & 1) == 0) logits[i] = kForbidden;
    }
  }
  std::fill(logits.begin() + static_cast<std::ptrdiff_t>(known), logits.end(), kForbidden);
}

}  // namespace kvasir
