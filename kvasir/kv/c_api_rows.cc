// kvasir_kv.h: what a sequence holds: rows, blocks, tensors, states.
// Deliberately only access: nothing here changes which rows there are.
#include <span>

#include "kvasir/kv/c_api_handles.h"
#include "kvasir/kv/dlpack_view.h"
#include "kvasir/kv/held_rows.h"

using namespace kvasir;  // NOLINT: the functions below are C and cannot be in a namespace

namespace {

std::string Range(int64_t begin, int64_t end) {
  return std::string("[") + std::to_string(begin) + ", " + std::to_string(end) + ")";
}

// Floats of one row: K and V.
struct RowFloats {
  size_t key;
  size_t value;
};

RowFloats RowFloatsOf(const KvSequence& sequence, int32_t layer) {
  const KvLayout& layout = sequence.spec().layers[static_cast<size_t>(layer)].layout;
  const auto heads = static_cast<size_t>(layout.kv_heads);
  return {heads * static_cast<size_t>(layout.key_dim),
          heads * static_cast<size_t>(layout.value_dim)};
}

Status CheckFloats(const char* what, const float* data, size_t floats, size_t expected) {
  if (data == nullptr && floats != 0) return NotNull(data, what);
  if (floats == expected || (data == nullptr && floats == 0)) return {};
  return InvalidArgument(std::string(what) + " has " + std::to_string(floats) + " floats, " +
                         std::to_string(expected) + " are needed");
}

Result<KvPart> PartOf(int32_t part) {
  if (part == KVASIR_KV_KEYS) return KvPart::kKeys;
  if (part == KVASIR_KV_VALUES) return KvPart::kValues;
  return InvalidArgument("part is " + std::to_string(part) + ", it must be keys (0) or values (1)");
}

// OK if the position has a row in `layer`, or will.
Status CheckPosition(const KvSequence& sequence, int32_t layer, int64_t position) {
  const Position first = sequence.EvictedUntil(layer);
  if (position >= first && position < kMaxPosition) return {};
  return InvalidArgument("position " + std::to_string(position) + " has no row in layer " +
                         std::to_string(layer) + ", only those from " + std::to_string(first) +
                         " on");
}

Status CheckRecurrent(const KvCacheSpec& spec, int32_t layer) {
  const bool exists = layer >= 0 && static_cast<size_t>(layer) < spec.layers.size();
  if (exists && spec.layers[static_cast<size_t>(layer)].is_recurrent()) return {};
  return InvalidArgument("layer " + std::to_string(layer) + " is no recurrent layer");
}

kvasir_kv_blocks BlocksOf(const KvBlocksView& view) {
  // A pointer to void and one to bytes have the same representation.
  const auto addresses = [](std::span<std::byte* const> list) {
    return reinterpret_cast<void* const*>(list.data());
  };
  return {
      sizeof(kvasir_kv_blocks), addresses(view.blocks), static_cast<int64_t>(view.blocks.size()),
      view.first_block,         addresses(view.head),   static_cast<int64_t>(view.head.size())};
}

}  // namespace

kvasir_kv_code kvasir_kv_sequence_write_rows(kvasir_kv_sequence* sequence, int32_t layer,
                                             int64_t first_row, const float* keys,
                                             size_t key_floats, const float* values,
                                             size_t value_floats, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    KvSequence& at = *sequence->at;
    KVASIR_TRY_OK(CheckLayerHasRows(at.spec(), layer));
    if (!at.spec().layers[static_cast<size_t>(layer)].owns_rows()) {
      return InvalidArgument("layer " + std::to_string(layer) + " shares the rows of layer " +
                             std::to_string(at.spec().layers[layer].shares_layer) +
                             "; write them there");
    }
    const RowFloats row = RowFloatsOf(at, layer);
    const size_t rows = key_floats / row.key;
    KVASIR_TRY_OK(NotNull(keys, "keys"));
    KVASIR_TRY_OK(NotNull(values, "values"));
    KVASIR_TRY_OK(CheckFloats("keys", keys, key_floats, rows * row.key));
    KVASIR_TRY_OK(CheckFloats("values", values, value_floats, rows * row.value));
    const int64_t begin = at.RowOf(layer, at.position());
    const int64_t end = at.RowOf(layer, at.reserved_end());
    if (first_row < begin || first_row > end || rows > static_cast<size_t>(end - first_row)) {
      return InvalidArgument(std::to_string(rows) + " rows from " + std::to_string(first_row) +
                             " on cannot be written, only those of " + Range(begin, end) +
                             " are reserved");
    }
    at.WriteRows(layer, first_row, {{keys, keys + key_floats}, {values, values + value_floats}});
    return {};
  });
}

kvasir_kv_code kvasir_kv_sequence_read_rows(const kvasir_kv_sequence* sequence, int32_t layer,
                                            int64_t first_row, int64_t rows, float* keys,
                                            size_t key_floats, float* values, size_t value_floats,
                                            kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    const KvSequence& at = *sequence->at;
    KVASIR_TRY_OK(CheckLayerHasRows(at.spec(), layer));
    KVASIR_TRY_OK(CheckHeld(at, layer, first_row, rows));
    const RowFloats row = RowFloatsOf(at, layer);
    const auto count = static_cast<size_t>(rows);
    KVASIR_TRY_OK(CheckFloats("keys", keys, key_floats, count * row.key));
    KVASIR_TRY_OK(CheckFloats("values", values, value_floats, count * row.value));
    const KvRows read = at.ReadRows(layer, first_row, first_row + rows);
    if (keys != nullptr) std::copy(read.keys.begin(), read.keys.end(), keys);
    if (values != nullptr) std::copy(read.values.begin(), read.values.end(), values);
    return {};
  });
}

kvasir_kv_code kvasir_kv_sequence_visible(const kvasir_kv_sequence* sequence, int32_t layer,
                                          int64_t query, kvasir_kv_visible* visible,
                                          kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    KVASIR_TRY_OK(NotNull(visible, "visible"));
    KVASIR_TRY_OK(CheckLayerHasRows(sequence->at->spec(), layer));
    KVASIR_TRY_OK(CheckPosition(*sequence->at, layer, query));
    const VisibleRows rows = sequence->at->Visible(layer, query);
    *visible = {rows.head_end, rows.begin, rows.end};
    return {};
  });
}

kvasir_kv_code kvasir_kv_sequence_row_of(const kvasir_kv_sequence* sequence, int32_t layer,
                                         int64_t position, int64_t* row, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    KVASIR_TRY_OK(NotNull(row, "row"));
    KVASIR_TRY_OK(CheckLayerHasRows(sequence->at->spec(), layer));
    KVASIR_TRY_OK(CheckPosition(*sequence->at, layer, position));
    *row = sequence->at->RowOf(layer, position);
    return {};
  });
}

kvasir_kv_code kvasir_kv_sequence_row_positions(const kvasir_kv_sequence* sequence, int32_t layer,
                                                int64_t* positions, size_t capacity,
                                                int64_t* stored_rows, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    if (capacity > 0) KVASIR_TRY_OK(NotNull(positions, "positions"));
    KVASIR_TRY_OK(CheckLayerHasRows(sequence->at->spec(), layer));
    const std::vector<Position> all = sequence->at->RowPositions(layer);
    std::copy_n(all.begin(), std::min(capacity, all.size()), positions);
    if (stored_rows != nullptr) *stored_rows = static_cast<int64_t>(all.size());
    return {};
  });
}

kvasir_kv_code kvasir_kv_sequence_blocks(kvasir_kv_sequence* sequence, int32_t layer,
                                         kvasir_kv_blocks* blocks, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    KVASIR_TRY_OK(CheckLayerHasRows(sequence->at->spec(), layer));
    return WriteStruct(BlocksOf(sequence->at->Blocks(layer)), blocks);
  });
}

kvasir_kv_code kvasir_kv_sequence_recent_blocks(kvasir_kv_sequence* sequence, int32_t layer,
                                                kvasir_kv_blocks* blocks, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    KVASIR_TRY_OK(CheckLayerHasRows(sequence->at->spec(), layer));
    return WriteStruct(BlocksOf(sequence->at->RecentBlocks(layer)), blocks);
  });
}

kvasir_kv_code kvasir_kv_sequence_state(const kvasir_kv_sequence* sequence, int32_t layer,
                                        const void** state, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    KVASIR_TRY_OK(NotNull(state, "state"));
    KVASIR_TRY_OK(CheckRecurrent(sequence->at->spec(), layer));
    *state = sequence->at->State(layer);
    return {};
  });
}

kvasir_kv_code kvasir_kv_sequence_mutable_state(kvasir_kv_sequence* sequence, int32_t layer,
                                                void** state, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    KVASIR_TRY_OK(NotNull(state, "state"));
    KVASIR_TRY_OK(CheckRecurrent(sequence->at->spec(), layer));
    if (sequence->at->reserved_end() == sequence->at->position()) {
      return {ErrorCode::kFailedPrecondition,
              "sequence: no tokens are reserved, so its states cannot be written; reserve first"};
    }
    *state = sequence->at->MutableState(layer);
    return {};
  });
}

kvasir_kv_code kvasir_kv_sequence_inner_state(const kvasir_kv_sequence* sequence, int32_t layer,
                                              size_t index, int64_t* position, void** state,
                                              kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    KVASIR_TRY_OK(NotNull(state, "state"));
    KVASIR_TRY_OK(CheckRecurrent(sequence->at->spec(), layer));
    const std::vector<KvSequence::InnerState> inner = sequence->at->InnerStates(layer);
    *state = index < inner.size() ? inner[index].data : nullptr;
    if (position != nullptr && index < inner.size()) *position = inner[index].position;
    return {};
  });
}

kvasir_kv_code kvasir_kv_sequence_dlpack_block(const kvasir_kv_sequence* sequence, int32_t layer,
                                               int32_t part, int64_t block,
                                               struct DLManagedTensor** tensor,
                                               kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    KVASIR_TRY_OK(NotNull(tensor, "tensor"));
    KVASIR_TRY(const KvPart which, PartOf(part));
    KVASIR_TRY(*tensor, DlpackBlock(*sequence->at, {layer, which, sequence->user}, block));
    return {};
  });
}

kvasir_kv_code kvasir_kv_sequence_dlpack_rows(const kvasir_kv_sequence* sequence, int32_t layer,
                                              int32_t part, int64_t begin, int64_t end,
                                              struct DLManagedTensor** tensor,
                                              kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    KVASIR_TRY_OK(NotNull(tensor, "tensor"));
    KVASIR_TRY(const KvPart which, PartOf(part));
    KVASIR_TRY(*tensor, DlpackRows(*sequence->at, {layer, which, sequence->user}, begin, end));
    return {};
  });
}
