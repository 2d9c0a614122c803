// Fuzzes the GGUF header, its metadata, its config and its tokenizer: any bytes.
// Deliberately decodes the first and last block of every tensor it accepts: a view outside the file
// is a crash, not a surprise.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "kvasir/base/check.h"
#include "kvasir/formats/gguf.h"
#include "kvasir/formats/gguf_config.h"
#include "kvasir/formats/gguf_header.h"
#include "kvasir/formats/gguf_special_tokens.h"
#include "kvasir/formats/gguf_tokenizer.h"
#include "kvasir/tokenizer/tokenizer.h"

// The way of a block into a packed matrix.
void KeepCodes(const kvasir::GgufType& type, const std::byte* block) {
  kvasir::CodedRow row;
  row.codes.resize(static_cast<size_t>(type.block_elements));
  row.scales.resize(2);
  row.biases.resize(2);
  row.sub_scales.resize(16);
  row.sub_mins.resize(16);
  type.codes(block, {row.codes.data(), row.scales.data(), row.biases.data(), row.sub_scales.data(),
                     row.sub_mins.data()});
  auto matrix =
      kvasir::PackedMatrix::Allocate(1, type.block_elements, type.stored_format, type.affine);
  KVASIR_CHECK(matrix.ok());
  matrix->SetCodedRow(0, row);
  std::vector<float> out(row.codes.size());
  matrix->GetRow(0, out.data());
}

// Configs are read of files alone: a scratch one, in memory where the system has such a place.
void ReadConfig(const uint8_t* data, size_t size) {
  static const std::string path =
      (std::filesystem::exists("/dev/shm") ? std::filesystem::path("/dev/shm")
                                           : std::filesystem::temp_directory_path())
          .string() +
      "/kvasir-gguf-fuzz-" + std::to_string(getpid()) + ".gguf";
  std::ofstream(path, std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  const auto file = kvasir::GgufFile::Open(path);
  if (!file.ok()) return;
  [[maybe_unused]] const auto config = kvasir::GgufModelConfig(*file);
  [[maybe_unused]] const auto json = kvasir::GgufConfigJson(*file);
}

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
    for (const std::byte* at : {begin, begin + entry.size_bytes - block_bytes}) {
      entry.type->decode(at, block.data());
      if (entry.type->codes != nullptr) KeepCodes(*entry.type, at);
    }
  }
  ReadConfig(data, size);
  [[maybe_unused]] const auto special = kvasir::GgufSpecialTokens::Read(header->metadata);
  const auto json = kvasir::GgufTokenizerJson(header->metadata);
  if (!json.ok()) return 0;
  const auto tokenizer = kvasir::Tokenizer::FromJson(*json);
  if (tokenizer.ok()) {
    [[maybe_unused]] const auto ids = (*tokenizer)->Encode("a <b> 12\n");
  }
  return 0;
}
