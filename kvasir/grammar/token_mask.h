// TokenMask: one bit per token of a vocabulary, set where the token may come next.
// Deliberately no knowledge of why.
#ifndef KVASIR_GRAMMAR_TOKEN_MASK_H_
#define KVASIR_GRAMMAR_TOKEN_MASK_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvasir/base/token.h"

namespace kvasir {

class TokenMask {
 public:
  TokenMask() = default;
  // All clear.
  explicit TokenMask(size_t vocab_size) : words_((vocab_size + 63) / 64), vocab_size_(vocab_size) {}

  size_t vocab_size() const { return vocab_size_; }
  size_t size_bytes() const { return words_.size() * sizeof(uint64_t); }
  // REQUIRES: 0 <= token < vocab_size().
  void Set(Token token) { words_[Word(token)] |= Bit(token); }
  // False for ids outside the vocabulary.
  bool Test(Token token) const {
    return token >= 0 && static_cast<size_t>(token) < vocab_size_ &&
           (words_[Word(token)] & Bit(token)) != 0;
  }
  size_t Count() const;
  bool None() const;
  // REQUIRES: equal sizes.
  void Add(const TokenMask& other);
  // Sets the logits of all tokens that may not come next to -infinity, those of rows beyond the
  // vocabulary too.
  void Apply(std::span<float> logits) const;

  friend bool operator==(const TokenMask&, const TokenMask&) = default;

 private:
  static size_t Word(Token token) { return static_cast<size_t>(token) / 64; }
  static uint64_t Bit(Token token) { return uint64_t{1} << (static_cast<size_t>(token) % 64); }

  std::vector<uint64_t> words_;
  size_t vocab_size_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_GRAMMAR_TOKEN_MASK_H_
