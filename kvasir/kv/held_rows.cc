#include "kvasir/kv/held_rows.h"

#include <string>

namespace kvasir {
namespace {

std::string Range(int64_t begin, int64_t end) {
  return std::string("[") + std::to_string(begin) + ", " + std::to_string(end) + ")";
}

}  // namespace

Status CheckLayerHasRows(const KvCacheSpec& spec, int64_t layer) {
  if (layer < 0 || static_cast<size_t>(layer) >= spec.layers.size()) {
    return {ErrorCode::kInvalidArgument, "layer " + std::to_string(layer) +
                                             " does not exist; there are " +
                                             std::to_string(spec.layers.size())};
  }
  if (!spec.layers[static_cast<size_t>(layer)].is_recurrent()) return {};
  return {ErrorCode::kInvalidArgument,
          "layer " + std::to_string(layer) + " is recurrent and has no rows"};
}

Status CheckHeld(const KvSequence& sequence, int layer, int64_t begin, int64_t rows) {
  const KvBlocksView blocks = sequence.Blocks(layer);
  const int64_t head_end = static_cast<int64_t>(blocks.head.size()) * kBlockTokens;
  const int64_t end = sequence.RowOf(layer, sequence.reserved_end());
  const bool in_head = begin < blocks.first_row();
  const int64_t limit = in_head && head_end < blocks.first_row() ? head_end : end;
  const int64_t lowest = head_end > 0 ? 0 : blocks.first_row();
  if (rows >= 0 && begin >= lowest && begin <= limit && rows <= limit - begin) return {};
  std::string held = Range(blocks.first_row(), end);
  if (head_end > 0) held += " and " + Range(0, head_end);
  return {ErrorCode::kInvalidArgument, std::to_string(rows) + " rows from " +
                                           std::to_string(begin) + " on: layer " +
                                           std::to_string(layer) + " holds the rows " + held};
}

}  // namespace kvasir
