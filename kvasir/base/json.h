// Json: an ordered JSON value, parsed and printed. Files, templates and HTTP bodies all use it.
// Deliberately not a schema language: typed look-ups name the field that is wrong, nothing more.
// The parser behind it (nlohmann-json) is seen by json.cc only.
#ifndef KVASIR_BASE_JSON_H_
#define KVASIR_BASE_JSON_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "kvasir/base/file.h"
#include "kvasir/base/result.h"

namespace kvasir {

class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  // Members in the order in which they were written; keys are unique (the last one wins).
  using Object = std::vector<Member>;

  Json() = default;  // null
  // Out of line: a variant this rich costs every includer code and compile time otherwise.
  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(const Json& other);
  Json& operator=(Json&& other) noexcept;
  ~Json();
  Json(std::nullptr_t) {}
  Json(bool value) : value_(value) {}
  Json(int value) : value_(static_cast<int64_t>(value)) {}
  Json(int64_t value) : value_(value) {}
  Json(uint64_t value);
  Json(double value) : value_(value) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(std::string value) : value_(std::move(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(Array value) : value_(std::move(value)) {}
  Json(Object value) : value_(std::move(value)) {}

  // Containers nested deeper than this are refused by Parse, so that recursion over a Json is safe.
  static constexpr int kMaxDepth = 100;

  // Takes up to 25 times the text's memory. ERRORS: kCorrupt with the byte offset and the reason;
  // also when nested deeper than kMaxDepth. kResourceExhausted without the memory.
  static Result<Json> Parse(std::string_view text);
  // Reads and parses a file. ERRORS: as ReadFile, kCorrupt; the message begins with the path.
  static Result<Json> ParseFile(const std::string& path, size_t most_bytes = kMostFileBytes);

  // Compact, UTF-8. Invalid UTF-8 in strings becomes U+FFFD; NaN and infinities become null.
  std::string Dump() const;
  // Indented by `spaces` per level.
  std::string DumpPretty(int spaces = 2) const;

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_int() const { return std::holds_alternative<int64_t>(value_); }
  // Also of an integer above 2^63 - 1, which is printed as it is and which as_double rounds.
  bool is_double() const { return std::holds_alternative<double>(value_) || is_above_int(); }
  bool is_above_int() const { return std::holds_alternative<uint64_t>(value_); }
  bool is_number() const { return is_int() || is_double(); }
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  // "null", "boolean", "integer", "number", "string", "array" or "object".
  std::string_view type_name() const;

  // REQUIRES: the matching is_...().
  bool as_bool() const;
  int64_t as_int() const;
  uint64_t as_above_int() const;
  double as_double() const;  // also of an integer
  const std::string& as_string() const;
  const Array& as_array() const;
  Array& as_array();
  const Object& as_object() const;
  Object& as_object();

  // The member, or nullptr if this is no object or has no such key.
  const Json* Find(std::string_view key) const;
  Json* Find(std::string_view key) { return const_cast<Json*>(std::as_const(*this).Find(key)); }
  // Sets or replaces a member; a null becomes an object first. REQUIRES: null or object.
  Json& Set(std::string_view key, Json value);
  // Appends an element; a null becomes an array first. REQUIRES: null or array.
  void Append(Json value);

  // Required members. ERRORS: kCorrupt "field 'key' is missing" or "... must be an integer, ...".
  Result<int64_t> GetInt(std::string_view key) const;
  Result<double> GetDouble(std::string_view key) const;
  Result<bool> GetBool(std::string_view key) const;
  Result<std::string> GetString(std::string_view key) const;
  // Optional members: `otherwise` when absent or null, still an error when of another type.
  Result<int64_t> GetIntOr(std::string_view key, int64_t otherwise) const;
  Result<double> GetDoubleOr(std::string_view key, double otherwise) const;
  Result<bool> GetBoolOr(std::string_view key, bool otherwise) const;
  Result<std::string> GetStringOr(std::string_view key, std::string otherwise) const;

  friend bool operator==(const Json& a, const Json& b) { return a.value_ == b.value_; }

 private:
  std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object, uint64_t> value_;
};

}  // namespace kvasir

#endif  // KVASIR_BASE_JSON_H_
