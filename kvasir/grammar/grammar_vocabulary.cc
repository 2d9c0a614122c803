#include "kvasir/grammar/grammar_vocabulary.h"

#include <utility>

#include "kvasir/grammar/plain_text.h"

namespace kvasir {

GrammarVocabulary::GrammarVocabulary(std::vector<std::string> bytes,
                                     std::span<const Token> end_tokens)
    : bytes_(std::move(bytes)), end_(bytes_.size()), plain_(bytes_.size()) {
  for (const Token token : end_tokens) {
    if (token >= 0 && static_cast<size_t>(token) < bytes_.size()) {
      end_.Set(token);
      end_tokens_.push_back(token);
    }
  }
  std::vector<std::pair<std::string, Token>> plain;
  std::vector<std::pair<std::string, Token>> other;
  for (size_t i = 0; i < bytes_.size(); ++i) {
    const auto token = static_cast<Token>(i);
    if (IsEnd(token) || bytes_[i].size() > TokenTrie::kMaxTokenBytes) bytes_[i].clear();
    if (bytes_[i].empty()) continue;
    const auto characters = PlainCharacters(bytes_[i]);
    const bool is_plain = characters.has_value() && *characters <= kMaxPlainCharacters;
    if (is_plain) plain_.Set(token);
    (is_plain ? plain : other).emplace_back(bytes_[i], token);
  }
  plain_trie_ = TokenTrie(std::move(plain));
  other_trie_ = TokenTrie(std::move(other));
}

GrammarVocabulary GrammarVocabulary::FromTokenizer(const Tokenizer& tokenizer,
                                                   std::span<const Token> end_tokens,
                                                   std::span<const Token> markers) {
  std::vector<std::string> bytes(static_cast<size_t>(tokenizer.vocab_size()));
  for (size_t i = 0; i < bytes.size(); ++i) {
    const auto token = static_cast<Token>(i);
    if (!tokenizer.IsSpecial(token)) bytes[i] = tokenizer.TokenBytes(token);
  }
  for (const Token marker : markers) {
    bytes[static_cast<size_t>(marker)] = tokenizer.TokenText(marker);
  }
  return {std::move(bytes), end_tokens};
}

std::string_view GrammarVocabulary::bytes(Token token) const {
  if (token < 0 || static_cast<size_t>(token) >= bytes_.size()) return {};
  return bytes_[static_cast<size_t>(token)];
}

}  // namespace kvasir
