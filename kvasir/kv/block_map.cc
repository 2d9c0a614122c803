#include "kvasir/kv/block_map.h"

#include <algorithm>

#include "kvasir/base/check.h"

namespace kvasir {
namespace {

// Block numbers of a list, each once.
std::vector<uint32_t> NumbersOf(const KvBlockMap::List& list) {
  std::vector<uint32_t> numbers = list.head;
  numbers.insert(numbers.end(), list.blocks.begin(), list.blocks.end());
  std::sort(numbers.begin(), numbers.end());
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

std::vector<uint32_t> NumbersOf(const KvBlockMap::Sequence& sequence) {
  KvBlockMap::List all;
  for (const KvBlockMap::List& list : sequence.lists) {
    all.blocks.insert(all.blocks.end(), list.head.begin(), list.head.end());
    all.blocks.insert(all.blocks.end(), list.blocks.begin(), list.blocks.end());
  }
  return NumbersOf(all);
}

KvBlockMap::Bytes Sum(const std::vector<uint32_t>& numbers,
                      const std::vector<uint64_t>& block_bytes,
                      const std::vector<int>& references) {
  KvBlockMap::Bytes bytes;
  for (const uint32_t number : numbers) {
    bytes.all += block_bytes[number];
    if (references[number] == 1) bytes.exclusive += block_bytes[number];
  }
  return bytes;
}

}  // namespace

std::vector<KvBlockMap::List> KvBlockMap::ListsOf(const KvCacheSpec& spec) {
  std::vector<List> lists;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const KvLayerSpec& layer = spec.layers[i];
    const int index = static_cast<int>(i);
    if (layer.is_recurrent()) lists.push_back({.layer = index, .part = Part::kState});
    if (!layer.owns_rows()) continue;
    lists.push_back({.layer = index, .part = Part::kRows});
    if (layer.layout.dense_recent > 0) lists.push_back({.layer = index, .part = Part::kRecent});
  }
  return lists;
}

std::vector<KvBlockMap::Budget> KvBlockMap::BudgetsOf(const KvCacheSpec& spec) {
  std::vector<Budget> budgets;
  bool has_common = false;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const KvLayerSpec& layer = spec.layers[i];
    if (!layer.owns_rows() || layer.retention.kind != RetentionSpec::Kind::kBudget) continue;
    if (!layer.retention.per_layer && has_common) continue;
    if (!layer.retention.per_layer) has_common = true;
    budgets.push_back({.layer = static_cast<int>(i)});
  }
  return budgets;
}

KvBlockLayout KvBlockMap::LayoutOf(const List& list, int64_t index) const {
  KVASIR_CHECK(list.part != Part::kState);
  const KvLayout& layout = spec.layers[static_cast<size_t>(list.layer)].layout;
  return list.part == Part::kRecent ? layout.RecentBlock() : layout.BlockAt(index);
}

std::vector<int> KvBlockMap::References() const {
  std::vector<int> references(block_bytes.size(), 0);
  for (const Sequence& sequence : sequences) {
    for (const uint32_t number : NumbersOf(sequence)) ++references[number];
  }
  return references;
}

KvBlockMap::Bytes KvBlockMap::BytesOf(const Sequence& sequence,
                                      const std::vector<int>& references) const {
  return Sum(NumbersOf(sequence), block_bytes, references);
}

KvBlockMap::Bytes KvBlockMap::BytesOf(const List& list, const std::vector<int>& references) const {
  return Sum(NumbersOf(list), block_bytes, references);
}

std::string CodecsText(const KvBlockLayout& layout) {
  const std::string keys = layout.key_codec.name();
  if (layout.value_codec == layout.key_codec) return keys;
  return keys + " / " + layout.value_codec.name();
}

std::string LayersText(const std::vector<int>& layers) {
  std::string text = layers.size() == 1 ? "layer " : "layers ";
  for (size_t i = 0; i < layers.size();) {
    size_t last = i;
    while (last + 1 < layers.size() && layers[last + 1] == layers[last] + 1) ++last;
    if (i > 0) text += ", ";
    text += std::to_string(layers[i]);
    if (last > i) text.append("-").append(std::to_string(layers[last]));
    i = last + 1;
  }
  return text;
}

}  // namespace kvasir
