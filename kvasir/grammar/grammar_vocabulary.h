// GrammarVocabulary: the bytes of every token a grammar may produce, arranged for masks. Built once
// per tokenizer.
// Deliberately without special tokens but the ones it is given: no grammar can ask for others,
// except to end the text.
#ifndef KVASIR_GRAMMAR_GRAMMAR_VOCABULARY_H_
#define KVASIR_GRAMMAR_GRAMMAR_VOCABULARY_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/token.h"
#include "kvasir/grammar/token_mask.h"
#include "kvasir/grammar/token_trie.h"
#include "kvasir/tokenizer/tokenizer.h"

namespace kvasir {

// THREADS: immutable.
class GrammarVocabulary {
 public:
  // Plain tokens of more characters than this are treated like any other token.
  static constexpr int kMaxPlainCharacters = 16;

  // `bytes[id]` is what token id adds to a text. Tokens without bytes, with more than
  // TokenTrie::kMaxTokenBytes, and `end_tokens` never continue a text; the latter end it. Ids in
  // `end_tokens` outside the vocabulary are left out.
  GrammarVocabulary(std::vector<std::string> bytes, std::span<const Token> end_tokens);
  // `markers`: special tokens that stand for their text all the same.
  static GrammarVocabulary FromTokenizer(const Tokenizer& tokenizer,
                                         std::span<const Token> end_tokens,
                                         std::span<const Token> markers = {});

  size_t size() const { return bytes_.size(); }
  // Empty for tokens that never continue a text, and for ids that no token has.
  std::string_view bytes(Token token) const;
  bool IsEnd(Token token) const { return end_.Test(token); }
  const std::vector<Token>& end_tokens() const { return end_tokens_; }

  const TokenMask& end() const { return end_; }
  // The tokens of up to kMaxPlainCharacters whole characters of plain text (plain_text.h): a
  // grammar inside a string allows them all at once.
  const TokenMask& plain() const { return plain_; }
  const TokenTrie& plain_trie() const { return plain_trie_; }
  // All others.
  const TokenTrie& other_trie() const { return other_trie_; }

 private:
  std::vector<std::string> bytes_;
  std::vector<Token> end_tokens_;
  TokenMask end_;
  TokenMask plain_;
  TokenTrie plain_trie_;
  TokenTrie other_trie_;
};

}  // namespace kvasir

#endif  // KVASIR_GRAMMAR_GRAMMAR_VOCABULARY_H_
