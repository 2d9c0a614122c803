// One row (one head of one token) in and out of a head's plane, for the affine and turbo codecs:
// codes and parameters at their places in the layout of kv_codec.h.
// Deliberately scalar: the reference of the kernels' encoders, and the store without a backend.
#ifndef KVASIR_TENSOR_PACKED_CODEC_H_
#define KVASIR_TENSOR_PACKED_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kvasir/tensor/affine_codec.h"
#include "kvasir/tensor/kv_codec.h"

namespace kvasir {

// All: `plane` is one head of a block (HeadBytes), of any alignment; row has `dim` floats;
// 0 <= slot < 64. Rows of other slots stay as they are, bit for bit.
// REQUIRES: codec.is_packed() and codec.Validate(row.size()) is OK.

void EncodePackedKeyRow(const KvCodec& codec, std::byte* plane, int slot,
                        std::span<const float> row);
void EncodePackedValueRow(const KvCodec& codec, std::byte* plane, int slot,
                          std::span<const float> row);

// The row that was encoded, up to the codec's error.
void DecodePackedKeyRow(const KvCodec& codec, const std::byte* plane, int slot,
                        std::span<float> row);
void DecodePackedValueRow(const KvCodec& codec, const std::byte* plane, int slot,
                          std::span<float> row);

// All 64 rows of a head's key plane, each as DecodePackedKeyRow gives it: tile is [dim][64], dim as
// for a row. What the plane holds of rows that were never written is decoded too.
void DecodePackedKeyPlane(const KvCodec& codec, const std::byte* plane, int64_t dim, float* tile);

// The row as attention reads it: where the codec rotates, not rotated back.
void LoadPackedKeyRow(const KvCodec& codec, const std::byte* plane, int slot, std::span<float> row);
void LoadPackedValueRow(const KvCodec& codec, const std::byte* plane, int slot,
                        std::span<float> row);

// One parameter of one slot; `plane` as above, so `dim` says where the codes end.
AffineGroup LoadAffineGroup(const KvCodec& codec, const std::byte* plane, int64_t dim,
                            int64_t group_index, int slot);
void StoreAffineGroup(const KvCodec& codec, std::byte* plane, int64_t dim, int64_t group_index,
                      int slot, AffineGroup group);
float LoadTurboNorm(const KvCodec& codec, const std::byte* plane, int64_t dim, int slot);
void StoreTurboNorm(const KvCodec& codec, std::byte* plane, int64_t dim, int slot, float norm);

}  // namespace kvasir

#endif  // KVASIR_TENSOR_PACKED_CODEC_H_
