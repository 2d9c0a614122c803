// Hand-made GGUF bytes for tests.
// Deliberately writes whatever it is told, sound or not.
#ifndef KVASIR_FORMATS_GGUF_TEST_BYTES_H_
#define KVASIR_FORMATS_GGUF_TEST_BYTES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/bytes.h"

namespace kvasir {

struct GgufTestTensor {
  std::string name;
  std::vector<uint64_t> dimensions;  // as in the file: fastest first
  uint32_t type = 0;
  uint64_t offset = 0;
};

class GgufTestFile {
 public:
  GgufTestFile& Text(std::string_view key, std::string_view value) {
    Key(key, 8);
    String(value, &pairs_);
    return *this;
  }
  GgufTestFile& U32(std::string_view key, uint32_t value) {
    Key(key, 4);
    pairs_.Write(value);
    return *this;
  }
  GgufTestFile& F32(std::string_view key, float value) {
    Key(key, 6);
    pairs_.Write(value);
    return *this;
  }
  GgufTestFile& Bool(std::string_view key, bool value) {
    Key(key, 7);
    pairs_.Write(static_cast<uint8_t>(value));
    return *this;
  }
  GgufTestFile& Texts(std::string_view key, const std::vector<std::string>& values) {
    Array(key, 8, values.size());
    for (const std::string& value : values) String(value, &pairs_);
    return *this;
  }
  GgufTestFile& I32s(std::string_view key, const std::vector<int32_t>& values) {
    Array(key, 5, values.size());
    for (const int32_t value : values) pairs_.Write(value);
    return *this;
  }
  GgufTestFile& F32s(std::string_view key, const std::vector<float>& values) {
    Array(key, 6, values.size());
    for (const float value : values) pairs_.Write(value);
    return *this;
  }
  // The head of an array whose elements do not follow.
  GgufTestFile& Array(std::string_view key, uint32_t type, uint64_t count) {
    Key(key, 9);
    pairs_.Write(type);
    pairs_.Write(count);
    return *this;
  }
  // A value of any type, as raw bytes.
  GgufTestFile& Raw(std::string_view key, uint32_t type, std::string_view bytes) {
    Key(key, type);
    pairs_.WriteText(bytes);
    return *this;
  }
  GgufTestFile& Tensor(const GgufTestTensor& tensor) {
    ++tensor_count_;
    String(tensor.name, &tensors_);
    tensors_.Write(static_cast<uint32_t>(tensor.dimensions.size()));
    for (const uint64_t extent : tensor.dimensions) tensors_.Write(extent);
    tensors_.Write(tensor.type);
    tensors_.Write(tensor.offset);
    return *this;
  }

  // With `data_bytes` zeros behind the padding.
  std::string Bytes(size_t data_bytes, uint32_t version = 3) const {
    BytesWriter out;
    out.WriteText("GGUF");
    out.Write(version);
    out.Write(tensor_count_);
    out.Write(pair_count_);
    out.WriteText(pairs_.str());
    out.WriteText(tensors_.str());
    std::string bytes = out.Take();
    bytes.resize((bytes.size() + 31) / 32 * 32 + data_bytes);
    return bytes;
  }

 private:
  void Key(std::string_view key, uint32_t type) {
    ++pair_count_;
    String(key, &pairs_);
    pairs_.Write(type);
  }
  static void String(std::string_view text, BytesWriter* out) {
    out->Write(static_cast<uint64_t>(text.size()));
    out->WriteText(text);
  }

  BytesWriter pairs_;
  BytesWriter tensors_;
  uint64_t pair_count_ = 0;
  uint64_t tensor_count_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_FORMATS_GGUF_TEST_BYTES_H_
