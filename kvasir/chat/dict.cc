// Dict look-up by hash, equality as Python's.
// Deliberately its own small equality: keys are only scalars and tuples, which cannot fail to
// compare.
#include "kvasir/chat/dict.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "kvasir/base/text_hash.h"

namespace kvasir::chat {
namespace {

// Converting a double to int64_t is defined only inside this range.
bool IsIntegralDouble(double value) {
  return std::floor(value) == value && value >= -9.0e18 && value <= 9.0e18;
}

size_t HashKey(const Value& key) {
  if (key.is_string()) return TextHash()(key.bytes());
  if (key.is_integral()) return std::hash<int64_t>()(key.as_integral());
  if (key.is_float()) {
    const double value = key.as_double();
    if (IsIntegralDouble(value)) return std::hash<int64_t>()(static_cast<int64_t>(value));
    return std::hash<double>()(value);
  }
  if (key.is_sequence()) {
    size_t hash = 17;
    for (const Value& item : key.sequence().items) hash = hash * 31 + HashKey(item);
    return hash;
  }
  return 0;
}

bool KeysEqual(const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) return a.bytes() == b.bytes();
  if (a.is_number() && b.is_number()) {
    if (a.is_integral() && b.is_integral()) return a.as_integral() == b.as_integral();
    return a.as_double() == b.as_double();
  }
  if (a.is_sequence() && b.is_sequence()) {
    const auto& x = a.sequence().items;
    const auto& y = b.sequence().items;
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), KeysEqual);
  }
  return a.kind() == b.kind() && a.is_none();
}

}  // namespace

bool Dict::IsHashable(const Value& key) {
  if (key.is_sequence()) {
    // A tuple of tuples of ... could be walked exponentially often when its parts are shared.
    if (key.sequence().kind != SequenceKind::kTuple || key.sequence().depth > 4) return false;
    return std::all_of(key.sequence().items.begin(), key.sequence().items.end(), IsHashable);
  }
  return key.is_string() || key.is_number() || key.is_none();
}

size_t Dict::IndexOf(const Value& key) const {
  const auto [begin, end] = index_by_hash_.equal_range(HashKey(key));
  for (auto at = begin; at != end; ++at) {
    if (KeysEqual(entries_[at->second].first, key)) return at->second;
  }
  return entries_.size();
}

void Dict::Set(const Value& key, Value value) {
  depth_ = std::max({depth_, 1 + value.depth(), 1 + key.depth()});
  const size_t index = IndexOf(key);
  if (index < entries_.size()) {
    entries_[index].second = std::move(value);
    return;
  }
  index_by_hash_.emplace(HashKey(key), entries_.size());
  entries_.emplace_back(key, std::move(value));
}

const Value* Dict::Find(const Value& key) const {
  if (!IsHashable(key)) return nullptr;
  const size_t index = IndexOf(key);
  return index < entries_.size() ? &entries_[index].second : nullptr;
}

const Value* Dict::Find(std::string_view key) const {
  const auto [begin, end] = index_by_hash_.equal_range(TextHash()(key));
  for (auto at = begin; at != end; ++at) {
    const Value& candidate = entries_[at->second].first;
    if (candidate.is_string() && candidate.bytes() == key) return &entries_[at->second].second;
  }
  return nullptr;
}

}  // namespace kvasir::chat
