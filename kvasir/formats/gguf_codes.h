// GGUF blocks as codes and scales, for the types that a packed format holds to the bit.
// Deliberately no arithmetic on values: gguf_types.cc says which format holds which type.
#ifndef KVASIR_FORMATS_GGUF_CODES_H_
#define KVASIR_FORMATS_GGUF_CODES_H_

#include <cstddef>
#include <cstdint>

namespace kvasir::gguf {

// Where the parts of a CodedRow of one block go.
struct BlockCodes {
  uint8_t* codes;
  uint16_t* scales;
  uint16_t* biases;
  uint8_t* sub_scales;
  uint8_t* sub_mins;
};

void CodesOfQ8_0(const std::byte* block, const BlockCodes& out);   // q8
void CodesOfQ4_0(const std::byte* block, const BlockCodes& out);   // q4
void CodesOfQ4_1(const std::byte* block, const BlockCodes& out);   // q4_affine, f16
void CodesOfQ5_0(const std::byte* block, const BlockCodes& out);   // q5
void CodesOfQ5_1(const std::byte* block, const BlockCodes& out);   // q5_affine, f16
void CodesOfIq4Nl(const std::byte* block, const BlockCodes& out);  // iq4_nl
void CodesOfMxfp4(const std::byte* block, const BlockCodes& out);  // mxfp4
void CodesOfNvfp4(const std::byte* block, const BlockCodes& out);  // nvfp4

// Inputs of a scale, f16, of q1_affine and q2_affine, which hold types of one to two bits, or the
// block if it is less.
inline constexpr int kSmallCodeGroup = 128;
void CodesOfQ1_0(const std::byte* block, const BlockCodes& out);
// Unless twice the block's scale is no f16.
bool IsQ1_0Kept(const std::byte* block);
void CodesOfQ2_0(const std::byte* block, const BlockCodes& out);
void CodesOfTq1_0(const std::byte* block, const BlockCodes& out);
void CodesOfTq2_0(const std::byte* block, const BlockCodes& out);

void CodesOfQ3K(const std::byte* block, const BlockCodes& out);    // q3_k
void CodesOfQ4K(const std::byte* block, const BlockCodes& out);    // q4_k
void CodesOfQ5K(const std::byte* block, const BlockCodes& out);    // q5_k
void CodesOfQ2K(const std::byte* block, const BlockCodes& out);    // q2_k
void CodesOfIq4Xs(const std::byte* block, const BlockCodes& out);  // iq4_xs
void CodesOfQ6K(const std::byte* block, const BlockCodes& out);    // q6_k

}  // namespace kvasir::gguf

#endif  // KVASIR_FORMATS_GGUF_CODES_H_
