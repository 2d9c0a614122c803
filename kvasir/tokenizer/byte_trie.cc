#include "kvasir/tokenizer/byte_trie.h"

namespace kvasir {

int32_t ByteTrie::Child(int32_t node, uint8_t byte) const {
  int32_t child = nodes_[static_cast<size_t>(node)].first_child;
  while (child >= 0 && nodes_[static_cast<size_t>(child)].byte != byte) {
    child = nodes_[static_cast<size_t>(child)].next_sibling;
  }
  return child;
}

int32_t ByteTrie::AddChild(int32_t node, uint8_t byte) {
  const auto child = static_cast<int32_t>(nodes_.size());
  Node added;
  added.byte = byte;
  added.next_sibling = nodes_[static_cast<size_t>(node)].first_child;
  nodes_.push_back(added);
  nodes_[static_cast<size_t>(node)].first_child = child;
  return child;
}

void ByteTrie::Insert(std::string_view key, size_t value) {
  int32_t node = 0;
  for (const char c : key) {
    const auto byte = static_cast<uint8_t>(c);
    int32_t child = node == 0 ? first_[byte] : Child(node, byte);
    if (child < 0) {
      child = AddChild(node, byte);
      if (node == 0) first_[byte] = child;
    }
    node = child;
  }
  nodes_[static_cast<size_t>(node)].value = static_cast<int64_t>(value);
}

}  // namespace kvasir
