// ByteTrie: which of a set of byte strings begin at a place in a text.
// Deliberately no Aho-Corasick automaton: keys are short and the first byte rejects most places.
#ifndef KVASIR_TOKENIZER_BYTE_TRIE_H_
#define KVASIR_TOKENIZER_BYTE_TRIE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace kvasir {

class ByteTrie {
 public:
  ByteTrie() : nodes_(1) { first_.fill(-1); }

  // Maps `key` to `value`; a repeated key keeps the later value. REQUIRES: !key.empty().
  void Insert(std::string_view key, size_t value);

  // Calls `visit(value, size_bytes)` for every key that begins at `position`, shorter ones first.
  template <typename Visit>
  void ForEachAt(std::string_view text, size_t position, const Visit& visit) const {
    int32_t node = first_[static_cast<uint8_t>(text[position])];
    for (size_t end = position + 1; node >= 0; ++end) {
      if (const int64_t value = nodes_[static_cast<size_t>(node)].value; value >= 0) {
        visit(static_cast<size_t>(value), end - position);
      }
      if (end == text.size()) return;
      node = Child(node, static_cast<uint8_t>(text[end]));
    }
  }

 private:
  struct Node {
    int32_t first_child = -1;
    int32_t next_sibling = -1;
    int64_t value = -1;
    uint8_t byte = 0;
  };
  int32_t Child(int32_t node, uint8_t byte) const;
  int32_t AddChild(int32_t node, uint8_t byte);

  std::vector<Node> nodes_;         // [0] is the root
  std::array<int32_t, 256> first_;  // the root's children by their byte
};

}  // namespace kvasir

#endif  // KVASIR_TOKENIZER_BYTE_TRIE_H_
