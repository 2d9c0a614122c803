// The element types of GGUF tensors: their blocks, and how a block becomes floats.
// Deliberately scalar: the reference values of ggml, to the bit. Layouts: docs/formats/gguf.md.
#ifndef KVASIR_FORMATS_GGUF_TYPES_H_
#define KVASIR_FORMATS_GGUF_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "kvasir/formats/gguf_codes.h"
#include "kvasir/tensor/packed_matrix.h"

namespace kvasir {

struct GgufType {
  uint32_t id = 0;        // as in the file
  std::string_view name;  // "Q4_K"
  int block_elements = 1;
  int block_bytes = 0;
  // Decodes one block, aligned or not. Null for types this build does not decode.
  void (*decode)(const std::byte* block, float* out) = nullptr;
  // What the values become in memory when nobody asks for a format: one that keeps codes and
  // scales, else two bytes.
  WeightFormat stored_format = WeightFormat::kF16;
  // Reads one block for a quantized stored_format. Null for the others.
  void (*codes)(const std::byte* block, const gguf::BlockCodes& out) = nullptr;
  // What scales and biases of an affine stored_format are.
  AffineScales affine;
  // Whether they hold a block; null: always. A tensor that has another one becomes f16.
  bool (*is_kept)(const std::byte* block) = nullptr;
};

// Every type that files may hold. Null for an id that has no meaning (any more).
const GgufType* FindGgufType(uint32_t id);
// The name of a type that llama.cpp once wrote; null for other ids.
const char* FormerGgufType(uint32_t id);
std::span<const GgufType> AllGgufTypes();

}  // namespace kvasir

#endif  // KVASIR_FORMATS_GGUF_TYPES_H_
