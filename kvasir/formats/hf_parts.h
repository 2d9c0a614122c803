// What the readers of quantized modules have in common: checks of parts, and codes in words.
// Deliberately not for others: hf_weights.h is the way in.
#ifndef KVASIR_FORMATS_HF_PARTS_H_
#define KVASIR_FORMATS_HF_PARTS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/tensor/tensor_view.h"

namespace kvasir::hf {

// Far above any matrix; products of two fit 63 bits.
inline constexpr int64_t kMostExtent = int64_t{1} << 31;

// "qweight is f16 [3, 4] where i32 [4, 4] is needed"
Error Misfit(std::string_view part, const TensorView& view, const std::string& wanted);
// ERRORS: kCorrupt unless it is there, of that type and shape.
Status Check(std::string_view part, const TensorView* view, DType dtype,
             const std::vector<int64_t>& shape);
// ERRORS: kCorrupt unless it is a matrix with numbers in it.
Status CheckMatrix(std::string_view part, const TensorView* view);

std::span<const std::byte> Bytes(const TensorView& view);
// Of 32 bits. REQUIRES: index within the view.
uint32_t Word(const TensorView& view, int64_t index);
// Code `index` of a stream of codes, lowest bits first, whose words lie `stride` apart from word
// `first` on.
int StreamCode(const TensorView& words, int64_t first, int64_t stride, int bits, int64_t index);
// `count` codes of such a stream, from its first on.
void ReadStream(const TensorView& words, int64_t first, int64_t stride, int bits, int64_t count,
                uint8_t* codes);
// IsFloatType or f8_e8m0.
bool IsScaleType(DType dtype);
float ReadScale(const TensorView& view, int64_t index);

// Where inputs are in the order of activations (GPTQ's desc_act) their groups; empty where groups
// follow each other, or `view` is null. ERRORS: kCorrupt.
Result<std::vector<int32_t>> GroupsOfInputs(std::string_view part, const TensorView* view,
                                            int64_t inputs, int64_t group_inputs, int64_t groups);

}  // namespace kvasir::hf

#endif  // KVASIR_FORMATS_HF_PARTS_H_
