// Decoders of single GGUF blocks; gguf_types.cc lists them by type.
// Deliberately not an interface for readers: those go through GgufType::decode.
#ifndef KVASIR_FORMATS_GGUF_BLOCKS_H_
#define KVASIR_FORMATS_GGUF_BLOCKS_H_

#include <cstddef>

namespace kvasir::gguf {

// Each reads one block of its type and writes the block's elements. Products and sums are rounded
// one by one, in the order of ggml's reference (ggml-quants.c, dequantize_row_*).
void DecodeF32(const std::byte* block, float* out);
void DecodeF16(const std::byte* block, float* out);
void DecodeBf16(const std::byte* block, float* out);
void DecodeQ8_0(const std::byte* block, float* out);
void DecodeQ4_0(const std::byte* block, float* out);
void DecodeQ4_1(const std::byte* block, float* out);
void DecodeQ5_0(const std::byte* block, float* out);
void DecodeQ5_1(const std::byte* block, float* out);
void DecodeIq4Nl(const std::byte* block, float* out);
void DecodeMxfp4(const std::byte* block, float* out);
void DecodeNvfp4(const std::byte* block, float* out);
void DecodeQ1_0(const std::byte* block, float* out);
void DecodeQ2_0(const std::byte* block, float* out);
void DecodeTq1_0(const std::byte* block, float* out);
void DecodeTq2_0(const std::byte* block, float* out);
// Superblocks of 256 elements (gguf_superblocks.cc).
void DecodeQ2K(const std::byte* block, float* out);
void DecodeQ3K(const std::byte* block, float* out);
void DecodeQ4K(const std::byte* block, float* out);
void DecodeQ5K(const std::byte* block, float* out);
void DecodeQ6K(const std::byte* block, float* out);
void DecodeIq4Xs(const std::byte* block, float* out);

}  // namespace kvasir::gguf

#endif  // KVASIR_FORMATS_GGUF_BLOCKS_H_
