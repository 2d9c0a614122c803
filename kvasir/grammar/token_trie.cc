#include "kvasir/grammar/token_trie.h"

#include <algorithm>

#include "kvasir/base/check.h"

namespace kvasir {

TokenTrie::TokenTrie(std::vector<std::pair<std::string, Token>> tokens) {
  std::sort(tokens.begin(), tokens.end());
  nodes_.clear();
  std::vector<uint32_t> path;  // the open nodes, one per byte of the previous token
  const auto close_to = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) {
      nodes_[path.back()].subtree_end = static_cast<uint32_t>(nodes_.size());
    }
  };
  for (const auto& [bytes, token] : tokens) {
    KVASIR_CHECK(!bytes.empty() && bytes.size() <= kMaxTokenBytes);
    size_t shared = 0;
    while (shared < path.size() && shared < bytes.size() &&
           nodes_[path[shared]].byte == static_cast<uint8_t>(bytes[shared])) {
      ++shared;
    }
    close_to(shared);
    for (size_t i = shared; i < bytes.size(); ++i) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({.tokens_begin = static_cast<uint32_t>(tokens_.size()),
                        .depth = static_cast<uint16_t>(i),
                        .byte = static_cast<uint8_t>(bytes[i])});
    }
    // Equal strings are neighbours, so the tokens of a node are too.
    tokens_.push_back(token);
    max_bytes_ = std::max(max_bytes_, bytes.size());
  }
  close_to(0);
  nodes_.push_back({.tokens_begin = static_cast<uint32_t>(tokens_.size())});
}

}  // namespace kvasir
