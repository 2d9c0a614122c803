#include "kvasir/formats/gguf_types.h"

#include "kvasir/formats/gguf_blocks.h"

namespace kvasir {
namespace {

using enum WeightFormat;

constexpr GgufType kTypes[] = {
    {0, "F32", 1, 4, gguf::DecodeF32, kF32},
    {1, "F16", 1, 2, gguf::DecodeF16, kF16},
    {2, "Q4_0", 32, 18, gguf::DecodeQ4_0, kQ4, gguf::CodesOfQ4_0},
    {3, "Q4_1", 32, 20, gguf::DecodeQ4_1, kQ4Affine, gguf::CodesOfQ4_1},
    {6, "Q5_0", 32, 22, gguf::DecodeQ5_0, kQ5, gguf::CodesOfQ5_0},
    {7, "Q5_1", 32, 24, gguf::DecodeQ5_1, kQ5Affine, gguf::CodesOfQ5_1},
    {8, "Q8_0", 32, 34, gguf::DecodeQ8_0, kQ8, gguf::CodesOfQ8_0},
    {9, "Q8_1", 32, 36},
    {10, "Q2_K", 256, 84, gguf::DecodeQ2K, kQ2K, gguf::CodesOfQ2K},
    {11, "Q3_K", 256, 110, gguf::DecodeQ3K, kQ3K, gguf::CodesOfQ3K},
    {12, "Q4_K", 256, 144, gguf::DecodeQ4K, kQ4K, gguf::CodesOfQ4K},
    {13, "Q5_K", 256, 176, gguf::DecodeQ5K, kQ5K, gguf::CodesOfQ5K},
    {14, "Q6_K", 256, 210, gguf::DecodeQ6K, kQ6K, gguf::CodesOfQ6K},
    {15, "Q8_K", 256, 292},
    {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98},
    {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18, gguf::DecodeIq4Nl, kIq4Nl, gguf::CodesOfIq4Nl},
    {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136, gguf::DecodeIq4Xs, kIq4Xs, gguf::CodesOfIq4Xs},
    {24, "I8", 1, 1},
    {25, "I16", 1, 2},
    {26, "I32", 1, 4},
    {27, "I64", 1, 8},
    {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2, gguf::DecodeBf16, kBf16},
    {34, "TQ1_0", 256, 54, gguf::DecodeTq1_0, kQ2Affine, gguf::CodesOfTq1_0, {.group_inputs = 128}},
    {35, "TQ2_0", 256, 66, gguf::DecodeTq2_0, kQ2Affine, gguf::CodesOfTq2_0, {.group_inputs = 128}},
    {39, "MXFP4", 32, 17, gguf::DecodeMxfp4, kMxfp4, gguf::CodesOfMxfp4},
    {40, "NVFP4", 64, 36, gguf::DecodeNvfp4, kNvfp4, gguf::CodesOfNvfp4},
    {41,
     "Q1_0",
     128,
     18,
     gguf::DecodeQ1_0,
     kQ1Affine,
     gguf::CodesOfQ1_0,
     {.group_inputs = 128},
     gguf::IsQ1_0Kept},
    {42, "Q2_0", 64, 18, gguf::DecodeQ2_0, kQ2Affine, gguf::CodesOfQ2_0, {.group_inputs = 64}},
};

}  // namespace

const GgufType* FindGgufType(uint32_t id) {
  for (const GgufType& type : kTypes) {
    if (type.id == id) return &type;
  }
  return nullptr;
}

const char* FormerGgufType(uint32_t id) {
  switch (id) {
    case 4:
      return "Q4_2";
    case 5:
      return "Q4_3";
    case 31:
      return "Q4_0_4_4";
    case 32:
      return "Q4_0_4_8";
    case 33:
      return "Q4_0_8_8";
    case 36:
      return "IQ4_NL_4_4";
    case 37:
      return "IQ4_NL_4_8";
    case 38:
      return "IQ4_NL_8_8";
    default:
      return nullptr;
  }
}

std::span<const GgufType> AllGgufTypes() { return kTypes; }

}  // namespace kvasir
