// GgufMetadata: the key-value pairs at the front of a GGUF file.
// Deliberately knows no key by name: what a key means is gguf_config.cc's and gguf_tokenizer.cc's
// business.
#ifndef KVASIR_FORMATS_GGUF_METADATA_H_
#define KVASIR_FORMATS_GGUF_METADATA_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "kvasir/base/bytes.h"
#include "kvasir/base/result.h"

namespace kvasir {

// Integers of every width, signed or not, are int64; f32 and f64 are double; arrays hold one kind
// each, bools as integers. Strings borrow the file's bytes and may hold any bytes.
using GgufValue = std::variant<int64_t, double, bool, std::string_view, std::vector<int64_t>,
                               std::vector<double>, std::vector<std::string_view>>;

// 0.6 of the float that a converter made of 0.6; what is no float's as it is.
double ShortestDecimal(double value);

class GgufMetadata {
 public:
  // Reads `count` pairs. ERRORS: kCorrupt; kUnsupported for nested arrays, integers above
  // 2^63 - 1 and more than 2^24 array elements in all. The message names the key.
  static Result<GgufMetadata> Read(uint64_t count, BytesReader* reader);

  // Null when there is no such key.
  const GgufValue* Find(std::string_view key) const;
  bool Has(std::string_view key) const { return Find(key) != nullptr; }

  // A value of the type, or `otherwise` when there is no such key. ERRORS: kCorrupt for another
  // type, naming the key.
  Result<int64_t> IntOr(std::string_view key, int64_t otherwise) const;
  // Also of an integer; a float as its ShortestDecimal.
  Result<double> NumberOr(std::string_view key, double otherwise) const;
  Result<bool> FlagOr(std::string_view key, bool otherwise) const;
  Result<std::string> TextOr(std::string_view key, std::string_view otherwise) const;
  // Required. ERRORS: kCorrupt, also when it is missing.
  Result<int64_t> Int(std::string_view key) const;
  Result<double> Number(std::string_view key) const;
  Result<std::string> Text(std::string_view key) const;
  // One integer, or an array that holds it once per layer: writers differ. ERRORS: also
  // kUnsupported for an array whose elements differ.
  Result<int64_t> SameInt(std::string_view key) const;
  // Empty when there is no such key. ERRORS: kCorrupt for another type.
  Result<std::vector<std::string_view>> Strings(std::string_view key) const;
  Result<std::vector<int64_t>> Ints(std::string_view key) const;
  Result<std::vector<double>> Numbers(std::string_view key) const;

  const std::map<std::string, GgufValue, std::less<>>& values() const { return values_; }

 private:
  std::map<std::string, GgufValue, std::less<>> values_;
};

}  // namespace kvasir

#endif  // KVASIR_FORMATS_GGUF_METADATA_H_
