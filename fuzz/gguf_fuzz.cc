// Fuzzes the GGUF header, its metadata and its tokenizer: any bytes, no files.
// Deliberately decodes the first and last block of every tensor it accepts: a view outside the file
// is a crash, not a surprise.
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvasir/base/check.h"
#include "kvasir/formats/gguf_header.h"
#include "kvasir/formats/gguf_special_tokens.h"
#include "kvasir/formats/gguf_tokenizer.h"
#include "kvasir/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  const auto header = kvasir::GgufHeader::Parse(file);
  if (!header.ok()) return 0;
  std::vector<float> block(256);
  for (const kvasir::GgufEntry& entry : header->entries) {
    KVASIR_CHECK(entry.begin <= size && entry.size_bytes <= size - entry.begin);
    const auto block_bytes = static_cast<uint64_t>(entry.type->block_bytes);
    KVASIR_CHECK(entry.size_bytes >= block_bytes);
    if (entry.type->decode == nullptr) continue;
    const std::byte* begin = file.data() + entry.begin;
    entry.type->decode(begin, block.data());
    entry.type->decode(begin + entry.size_bytes - block_bytes, block.data());
  }
  [[maybe_unused]] const auto special = kvasir::GgufSpecialTokens::Read(header->metadata);
  const auto json = kvasir::GgufTokenizerJson(header->metadata);
  if (!json.ok()) return 0;
  const auto tokenizer = kvasir::Tokenizer::FromJson(*json);
  if (tokenizer.ok()) {
    [[maybe_unused]] const auto ids = (*tokenizer)->Encode("a <b> 12\n");
  }
  return 0;
}
