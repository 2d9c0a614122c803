// DryBreakers: the texts across which DRY sees no repetition, as token sequences.
// Deliberately not tied to a tokenizer: two functions stand for it.
#ifndef KVASIR_SAMPLING_DRY_BREAKERS_H_
#define KVASIR_SAMPLING_DRY_BREAKERS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/token.h"

namespace kvasir {

// Immutable. THREADS: all const methods may run concurrently.
class DryBreakers {
 public:
  struct Vocabulary {
    int64_t size = 0;
    std::function<std::string(Token)> bytes;  // what the token adds inside a text
    std::function<std::vector<Token>(std::string_view)> encode;
  };

  DryBreakers() = default;  // none
  // As llama.cpp does: a token that contains a text is a breaker by itself; a token that ends with
  // the beginning of one is a breaker when the tokens of the rest follow. The rest is cut to 20
  // tokens, a text to 40 bytes; empty texts are skipped. Time: size * texts, and 40 calls of encode
  // per text.
  DryBreakers(const std::vector<std::string>& texts, const Vocabulary& vocabulary);

  // A token that contains a breaker is never penalized.
  bool IsSingle(Token token) const { return KindOf(token) == kSingle; }
  // How many tokens at the end of `tokens` lie after the last breaker.
  size_t TailAfterLast(std::span<const Token> tokens) const;

 private:
  enum Kind : uint8_t { kNone, kHead, kSingle };
  struct Sequence {
    Token head;
    std::vector<Token> tail;  // not empty
  };

  Kind KindOf(Token token) const;
  // tails[overlap]: the tokens of the text after its first `overlap` bytes.
  void Add(std::string_view text, const std::vector<std::vector<Token>>& tails, Token token,
           std::string_view bytes);

  std::vector<uint8_t> kinds_;       // by token
  std::vector<Sequence> sequences_;  // ascending by head
};

}  // namespace kvasir

#endif  // KVASIR_SAMPLING_DRY_BREAKERS_H_
