// Dict: an insertion-ordered mapping with Python's notion of equal keys (1 == 1.0 == True).
// Deliberately not erasable: dicts are built once and then shared.
#ifndef KVASIR_CHAT_DICT_H_
#define KVASIR_CHAT_DICT_H_

#include <cstddef>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kvasir/chat/value.h"

namespace kvasir::chat {

class Dict {
 public:
  using Entry = std::pair<Value, Value>;

  // Strings, numbers, bools, None and tuples of those can be keys.
  static bool IsHashable(const Value& key);

  // Replaces the value of an equal key, keeping its place. REQUIRES: IsHashable(key).
  void Set(const Value& key, Value value);

  // The value, or nullptr.
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;

  const std::vector<Entry>& entries() const { return entries_; }
  size_t size() const { return entries_.size(); }
  int depth() const { return depth_; }

 private:
  // The index of the key in entries_, or size() when absent.
  size_t IndexOf(const Value& key) const;

  std::vector<Entry> entries_;
  std::unordered_multimap<size_t, size_t> index_by_hash_;
  int depth_ = 1;
};

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_DICT_H_
