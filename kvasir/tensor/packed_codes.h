// The places of codes: one code in a head's code plane (the units of kv_codec.h), and one row of
// codes in MLX's row packing. Deliberately one code at a time: kernels move vectors of 16.
#ifndef KVASIR_TENSOR_PACKED_CODES_H_
#define KVASIR_TENSOR_PACKED_CODES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "kvasir/tensor/kv_codec.h"

namespace kvasir {

inline constexpr int kUnitLanes = 16;
inline constexpr int kLaneCodes = 32;

// Code `index` of lane `lane` of unit `unit`.
struct CodePlace {
  int64_t unit;
  int lane;
  int index;
};
inline CodePlace KeyCodePlace(int64_t dim_index, int slot) {
  return {dim_index / 8, slot % kUnitLanes,
          slot / kUnitLanes * 8 + static_cast<int>(dim_index % 8)};
}
inline CodePlace ValueCodePlace(int64_t dim_index, int slot) {
  return {dim_index / kUnitLanes * 2 + slot / kLaneCodes, static_cast<int>(dim_index % kUnitLanes),
          slot % kLaneCodes};
}

// Below: `plane` is the codes of one head (CodeBytes), aligned or not; 0 <= slot < 64;
// 0 <= dim_index < dim; code < 2^bits. Nothing but the named code changes.

inline uint32_t LoadCode(const std::byte* plane, int bits, CodePlace place) {
  const int first_bit = place.index * bits;
  const int shift = first_bit % 32;
  const std::byte* word = plane + ((place.unit * bits + first_bit / 32) * kUnitLanes + place.lane) *
                                      static_cast<int64_t>(sizeof(uint32_t));
  uint32_t low;
  std::memcpy(&low, word, sizeof(low));
  uint64_t both = low;
  if (shift + bits > 32) {
    uint32_t high;
    std::memcpy(&high, word + kUnitLanes * sizeof(uint32_t), sizeof(high));
    both |= static_cast<uint64_t>(high) << 32;
  }
  return static_cast<uint32_t>(both >> shift) & ((1u << bits) - 1);
}

inline void StoreCode(std::byte* plane, int bits, CodePlace place, uint32_t code) {
  const int first_bit = place.index * bits;
  const int shift = first_bit % 32;
  std::byte* word = plane + ((place.unit * bits + first_bit / 32) * kUnitLanes + place.lane) *
                                static_cast<int64_t>(sizeof(uint32_t));
  const uint64_t mask = static_cast<uint64_t>((1u << bits) - 1) << shift;
  const uint64_t put = static_cast<uint64_t>(code) << shift;
  uint32_t low;
  std::memcpy(&low, word, sizeof(low));
  low = (low & ~static_cast<uint32_t>(mask)) | static_cast<uint32_t>(put);
  std::memcpy(word, &low, sizeof(low));
  if (shift + bits > 32) {
    word += kUnitLanes * sizeof(uint32_t);
    uint32_t high;
    std::memcpy(&high, word, sizeof(high));
    high = (high & ~static_cast<uint32_t>(mask >> 32)) | static_cast<uint32_t>(put >> 32);
    std::memcpy(word, &high, sizeof(high));
  }
}

inline uint32_t LoadKeyCode(const std::byte* plane, int bits, int64_t dim_index, int slot) {
  return LoadCode(plane, bits, KeyCodePlace(dim_index, slot));
}
inline void StoreKeyCode(std::byte* plane, int bits, int64_t dim_index, int slot, uint32_t code) {
  StoreCode(plane, bits, KeyCodePlace(dim_index, slot), code);
}
inline uint32_t LoadValueCode(const std::byte* plane, int bits, int64_t dim_index, int slot) {
  return LoadCode(plane, bits, ValueCodePlace(dim_index, slot));
}
inline void StoreValueCode(std::byte* plane, int bits, int64_t dim_index, int slot, uint32_t code) {
  StoreCode(plane, bits, ValueCodePlace(dim_index, slot), code);
}

// MLX's row packing: code i of a row is bits [i*b, (i+1)*b) of a stream of little-endian u32 words,
// lowest bit first; unused bits of the last word are zero.
inline int64_t RowWords(int64_t dim, int bits) { return (dim * bits + 31) / 32; }
// Writes RowWords(codes.size(), bits) words.
void PackRow(std::span<const uint8_t> codes, int bits, uint32_t* words);
// Reads RowWords(codes.size(), bits) words.
void UnpackRow(const uint32_t* words, int bits, std::span<uint8_t> codes);

}  // namespace kvasir

#endif  // KVASIR_TENSOR_PACKED_CODES_H_
