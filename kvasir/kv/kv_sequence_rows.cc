// KvSequence: rows in and out as floats.
// Deliberately for host memory and one row at a time: engines use their backend's kernels.
#include "kvasir/base/check.h"
#include "kvasir/kv/kv_sequence.h"
#include "kvasir/kv/row_codec.h"

namespace kvasir {

void KvSequence::WriteRows(int layer, int64_t first_row, const KvRows& rows) {
  const KvLayerSpec& layer_spec = spec().layers[static_cast<size_t>(layer)];
  const KvLayout& layout = layer_spec.layout;
  const size_t key_size = static_cast<size_t>(layout.kv_heads) * layout.key_dim;
  const size_t value_size = static_cast<size_t>(layout.kv_heads) * layout.value_dim;
  const auto count = static_cast<int64_t>(rows.keys.size() / key_size);
  KVASIR_CHECK(layer_spec.owns_rows());
  KVASIR_CHECK(rows.keys.size() == count * key_size && rows.values.size() == count * value_size);
  KVASIR_CHECK(first_row >= RowOf(layer, position_));
  KVASIR_CHECK(first_row + count <= RowOf(layer, reserved_end_));
  const KvBlocksView blocks = Blocks(layer);
  const KvBlocksView recent = RecentBlocks(layer);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t row = first_row + i;
    const auto key = std::span(rows.keys).subspan(i * key_size, key_size);
    const auto value = std::span(rows.values).subspan(i * value_size, value_size);
    const int64_t slot = row % kBlockTokens;
    EncodeRow(layout.BlockAt(row / kBlockTokens), blocks.block_of(row), slot, key, value);
    if (layout.dense_recent == 0) continue;
    EncodeRow(layout.RecentBlock(), recent.block_of(row), slot, key, value);
  }
}

KvRows KvSequence::ReadRows(int layer, int64_t begin, int64_t end) const {
  return ReadStore(content_.plan->store_of(layer), begin, end);
}

KvRows KvSequence::ReadRecentRows(int layer, int64_t begin, int64_t end) const {
  KVASIR_CHECK(spec().layers[static_cast<size_t>(layer)].layout.dense_recent > 0);
  return ReadStore(content_.plan->recent_store_of(layer), begin, end);
}

KvRows KvSequence::ReadStore(size_t store, int64_t begin, int64_t end) const {
  const KvStore& rules = content_.plan->stores()[store];
  const KvLayer& layer = content_.stores[store];
  const KvBlockLayout shape = rules.BlockAt(0);
  const size_t key_size = static_cast<size_t>(shape.kv_heads) * shape.key_dim;
  const size_t value_size = static_cast<size_t>(shape.kv_heads) * shape.value_dim;
  KVASIR_CHECK(begin >= 0 && begin <= end && end <= content_.RowAt(store, reserved_end_));
  KvRows rows;
  rows.keys.resize(static_cast<size_t>(end - begin) * key_size);
  rows.values.resize(static_cast<size_t>(end - begin) * value_size);
  for (int64_t row = begin; row < end; ++row) {
    const auto i = static_cast<size_t>(row - begin);
    KVASIR_CHECK(layer.Holds(row / kBlockTokens));
    const std::byte* block = layer.view().block_of(row);
    const KvBlockLayout layout = rules.BlockAt(row / kBlockTokens);
    const auto key = std::span(rows.keys).subspan(i * key_size, key_size);
    const auto value = std::span(rows.values).subspan(i * value_size, value_size);
    DecodeValue(layout, block, row % kBlockTokens, value);
    if (layout.key_codec.kind == KvCodec::Kind::kFromValue) {
      const auto& spec_of = spec().layers[static_cast<size_t>(rules.layer())];
      DeriveKey(spec_of.derivation(), PositionAt(content_.KeptOf(store), row), value, key);
    } else {
      DecodeKey(layout, block, row % kBlockTokens, key);
    }
  }
  return rows;
}

std::vector<float> KvSequence::ReadKeys(int layer, int64_t row) const {
  return ReadRows(layer, row, row + 1).keys;
}

std::vector<float> KvSequence::ReadValues(int layer, int64_t row) const {
  return ReadRows(layer, row, row + 1).values;
}

}  // namespace kvasir
