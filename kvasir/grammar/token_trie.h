// TokenTrie: the byte strings of tokens as a tree, laid out in the order of a depth-first walk.
// Deliberately no look-up by string: it is only ever walked along an automaton.
#ifndef KVASIR_GRAMMAR_TOKEN_TRIE_H_
#define KVASIR_GRAMMAR_TOKEN_TRIE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/base/token.h"

namespace kvasir {

class TokenTrie {
 public:
  struct Node {
    uint32_t subtree_end = 0;   // the node to go on with when this byte is not allowed
    uint32_t tokens_begin = 0;  // the tokens that end here: up to the next node's tokens_begin
    uint16_t depth = 0;         // bytes before this one
    uint8_t byte = 0;
  };

  static constexpr size_t kMaxTokenBytes = 4096;

  TokenTrie() = default;
  // REQUIRES: each token has 1 to kMaxTokenBytes bytes.
  explicit TokenTrie(std::vector<std::pair<std::string, Token>> tokens);

  // Preorder; the last node is a sentinel that ends the tokens of the one before it.
  std::span<const Node> nodes() const { return nodes_; }
  size_t node_count() const { return nodes_.size() - 1; }
  const Token* tokens() const { return tokens_.data(); }
  // Of the longest token.
  size_t max_bytes() const { return max_bytes_; }

 private:
  std::vector<Node> nodes_ = std::vector<Node>(1);
  std::vector<Token> tokens_;
  size_t max_bytes_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_GRAMMAR_TOKEN_TRIE_H_
