#include "kvasir/tensor/kv_layout.h"

#include <string>

namespace kvasir {
namespace {

// Any real model is orders of magnitude below; the product of all fields stays below 2^46 bytes.
constexpr int kMaxDimension = 1 << 16;

Status ValidateDimension(const char* field, int value) {
  if (value >= 1 && value <= kMaxDimension) return {};
  return {ErrorCode::kInvalidArgument, std::string(field) + " is " + std::to_string(value) +
                                           ", it must be from 1 to " +
                                           std::to_string(kMaxDimension)};
}

Status ValidateBlocks(const char* field, int64_t rows) {
  if (rows >= 0 && rows % kBlockTokens == 0) return {};
  return {ErrorCode::kInvalidArgument, std::string(field) + " is " + std::to_string(rows) +
                                           ", it must be a multiple of " +
                                           std::to_string(kBlockTokens) + ", 0 or more"};
}

}  // namespace

KvBlockLayout KvLayout::BlockAt(int64_t block) const {
  const bool dense = block * kBlockTokens < dense_start;
  return {.kv_heads = kv_heads,
          .key_dim = key_dim,
          .value_dim = value_dim,
          .key_codec = dense && key_codec.is_packed() ? dense_codec : key_codec,
          .value_codec = dense && value_codec.is_packed() ? dense_codec : value_codec,
          .key_norms = key_norms,
          .query_floats = block == observed_block ? query_floats : 0};
}

KvBlockLayout KvLayout::RecentBlock() const {
  return {.kv_heads = kv_heads,
          .key_dim = key_dim,
          .value_dim = value_dim,
          .key_codec = key_codec.is_packed() ? dense_codec : key_codec,
          .value_codec = value_codec.is_packed() ? dense_codec : value_codec};
}

size_t KvLayout::TokenBytes() const {
  KvBlockLayout rows = BlockAt(dense_start / kBlockTokens);
  rows.query_floats = 0;
  return rows.BlockBytes() / kBlockTokens;
}

Status KvLayout::Validate() const {
  KVASIR_TRY_OK(ValidateDimension("kv_heads", kv_heads));
  KVASIR_TRY_OK(ValidateDimension("key_dim", key_dim));
  KVASIR_TRY_OK(ValidateDimension("value_dim", value_dim));
  KVASIR_TRY_OK(key_codec.Validate(key_dim));
  KVASIR_TRY_OK(value_codec.Validate(value_dim));
  KVASIR_TRY_OK(ValidateBlocks("dense_start", dense_start));
  KVASIR_TRY_OK(ValidateBlocks("dense_recent", dense_recent));
  if (!dense_codec.is_dense()) {
    return {ErrorCode::kInvalidArgument,
            "dense_codec is " + dense_codec.name() + ", it must be f32, f16 or bf16"};
  }
  if (value_codec.kind == KvCodec::Kind::kFromValue) {
    return {ErrorCode::kInvalidArgument, "value_codec is from-value, which is for keys only"};
  }
  return {};
}

}  // namespace kvasir
