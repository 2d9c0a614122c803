#include "kvasir/kv/dlpack_view.h"

#include <dlpack/dlpack.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/kv/held_rows.h"

namespace kvasir {
namespace {

// What a tensor keeps alive. Members go in reverse order: the block before its owner.
struct Context {
  std::shared_ptr<const void> owner;
  KvLayer blocks;             // of a view: the one block
  std::vector<float> floats;  // of gathered rows
  std::array<int64_t, 3> shape;
  std::array<int64_t, 3> strides;  // in elements
  DLManagedTensor tensor;
};

void Delete(DLManagedTensor* tensor) { delete static_cast<Context*>(tensor->manager_ctx); }

DLDataType TypeOf(KvCodec::Kind kind) {
  switch (kind) {
    case KvCodec::Kind::kF32:
      return {kDLFloat, 32, 1};
    case KvCodec::Kind::kBf16:
      return {kDLBfloat, 16, 1};
    default:
      return {kDLFloat, 16, 1};
  }
}

// Hands the context over to the tensor's deleter.
DLManagedTensor* Release(std::unique_ptr<Context> context, void* data, DLDataType type,
                         uint64_t byte_offset) {
  DLManagedTensor& tensor = context->tensor;
  tensor.dl_tensor = {.data = data,
                      .device = {kDLCPU, 0},
                      .ndim = 3,
                      .dtype = type,
                      .shape = context->shape.data(),
                      .strides = context->strides.data(),
                      .byte_offset = byte_offset};
  tensor.deleter = Delete;
  tensor.manager_ctx = context.release();
  return &tensor;
}

}  // namespace

Result<DLManagedTensor*> DlpackBlock(const KvSequence& sequence, const DlpackRequest& request,
                                     int64_t block) {
  KVASIR_TRY_OK(CheckLayerHasRows(sequence.spec(), request.layer));
  if (block < 0 || block > kMaxPosition / kBlockTokens) {
    return {ErrorCode::kInvalidArgument, "block " + std::to_string(block) + " does not exist"};
  }
  const int64_t first_row = block * kBlockTokens;
  const int64_t rows =
      std::min<int64_t>(kBlockTokens, sequence.StoredRows(request.layer) - first_row);
  if (rows <= 0) {
    return {ErrorCode::kInvalidArgument, "block " + std::to_string(block) + " of layer " +
                                             std::to_string(request.layer) +
                                             " has no rows; the layer stores " +
                                             std::to_string(sequence.StoredRows(request.layer))};
  }
  KVASIR_TRY_OK(CheckHeld(sequence, request.layer, first_row, rows));
  const KvBlockLayout layout =
      sequence.spec().layers[static_cast<size_t>(request.layer)].layout.BlockAt(block);
  const bool keys = request.part == KvPart::kKeys;
  const KvCodec codec = keys ? layout.key_codec : layout.value_codec;
  if (!codec.is_dense()) {
    return {ErrorCode::kUnsupported, "layer " + std::to_string(request.layer) + " stores block " +
                                         std::to_string(block) + " as " + codec.name() +
                                         ", which no tensor can show; gather its rows"};
  }
  const int64_t dim = keys ? layout.key_dim : layout.value_dim;
  auto context = std::make_unique<Context>();
  context->owner = request.owner;
  context->blocks = sequence.layer_blocks(request.layer).Slice(block, block + 1);
  context->shape = {layout.kv_heads, rows, dim};
  context->strides = keys ? std::array<int64_t, 3>{dim * kBlockTokens, 1, kBlockTokens}
                          : std::array<int64_t, 3>{kBlockTokens * dim, dim, 1};
  return Release(std::move(context), sequence.Blocks(request.layer).block(block),
                 TypeOf(codec.kind), keys ? 0 : layout.KeyPlaneBytes());
}

Result<DLManagedTensor*> DlpackRows(const KvSequence& sequence, const DlpackRequest& request,
                                    int64_t begin, int64_t end) {
  KVASIR_TRY_OK(CheckLayerHasRows(sequence.spec(), request.layer));
  if (begin < 0 || end < begin) {
    return {ErrorCode::kInvalidArgument,
            "rows from " + std::to_string(begin) + " to " + std::to_string(end) + " are no range"};
  }
  KVASIR_TRY_OK(CheckHeld(sequence, request.layer, begin, end - begin));
  const KvLayout& layout = sequence.spec().layers[static_cast<size_t>(request.layer)].layout;
  const bool keys = request.part == KvPart::kKeys;
  const int64_t dim = keys ? layout.key_dim : layout.value_dim;
  KvRows rows = sequence.ReadRows(request.layer, begin, end);
  auto context = std::make_unique<Context>();
  context->owner = request.owner;
  context->floats = std::move(keys ? rows.keys : rows.values);
  context->shape = {end - begin, layout.kv_heads, dim};
  context->strides = {layout.kv_heads * dim, dim, 1};
  float* data = context->floats.data();
  return Release(std::move(context), data, TypeOf(KvCodec::Kind::kF32), 0);
}

}  // namespace kvasir
