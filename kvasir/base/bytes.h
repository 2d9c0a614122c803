// Little-endian reading and writing of byte strings, bounds-checked.
// Deliberately no varints, no reflection: formats are spelled out where they are documented.
#ifndef KVASIR_BASE_BYTES_H_
#define KVASIR_BASE_BYTES_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "kvasir/base/result.h"

namespace kvasir {

static_assert(std::endian::native == std::endian::little, "big-endian hosts are not supported");

// Reads from the front of a span; every read says whether it fitted.
class BytesReader {
 public:
  explicit BytesReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  size_t remaining() const { return rest_.size(); }

  // Any trivially copyable scalar. ERRORS: kCorrupt "truncated: ..." naming `what`.
  template <typename T>
  Result<T> Read(std::string_view what) {
    static_assert(std::is_arithmetic_v<T>);
    KVASIR_TRY(const std::span<const std::byte> source, ReadSpan(sizeof(T), what));
    T value;
    std::memcpy(&value, source.data(), sizeof(T));
    return value;
  }

  Result<std::span<const std::byte>> ReadSpan(uint64_t size_bytes, std::string_view what) {
    if (size_bytes > rest_.size()) {
      return {ErrorCode::kCorrupt, "truncated: " + std::string(what) + " needs " +
                                       std::to_string(size_bytes) + " bytes, " +
                                       std::to_string(rest_.size()) + " are left"};
    }
    const auto out = rest_.first(static_cast<size_t>(size_bytes));
    rest_ = rest_.subspan(static_cast<size_t>(size_bytes));
    return out;
  }

 private:
  std::span<const std::byte> rest_;
};

// Appends to a string.
class BytesWriter {
 public:
  template <typename T>
  void Write(T value) {
    static_assert(std::is_arithmetic_v<T>);
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    out_.append(raw, sizeof(T));
  }
  void WriteText(std::string_view text) { out_.append(text); }
  const std::string& str() const { return out_; }
  std::string Take() { return std::move(out_); }

 private:
  std::string out_;
};

}  // namespace kvasir

#endif  // KVASIR_BASE_BYTES_H_
