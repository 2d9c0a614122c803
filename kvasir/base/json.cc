#include "kvasir/base/json.h"

#include <cmath>
#include <limits>
#include <new>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "kvasir/base/file.h"
#include "kvasir/base/text_hash.h"

namespace kvasir {
namespace {

// Builds a Json from parser events; iterative, so the depth limit is ours and not the stack's.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return Add(Json()); }
  bool boolean(bool value) override { return Add(Json(value)); }
  bool number_integer(number_integer_t value) override {
    return Add(Json(static_cast<int64_t>(value)));
  }
  bool number_unsigned(number_unsigned_t value) override {
    return Add(Json(static_cast<uint64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t&) override { return Add(Json(value)); }
  bool string(string_t& value) override { return Add(Json(std::move(value))); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return Open(Json(Json::Object())); }
  bool key(string_t& value) override {
    open_.back().key = std::move(value);
    return true;
  }
  bool end_object() override {
    Unique(open_.back().value.as_object());
    return Close();
  }
  bool start_array(std::size_t) override { return Open(Json(Json::Array())); }
  bool end_array() override { return Close(); }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::json::exception& error) override {
    // "[json.exception...] parse error at line 1, column 2: ..." without the bracketed identifier.
    std::string reason = error.what();
    if (const size_t end = reason.find("] "); end != std::string::npos) reason.erase(0, end + 2);
    // It repeats the text around the error, however long a number is.
    constexpr size_t kMostReason = 300;
    if (reason.size() > kMostReason) {
      size_t end = kMostReason;
      while (end > 0 && (static_cast<unsigned char>(reason[end]) & 0xC0) == 0x80) --end;
      reason.resize(end);
      reason += " ...";
    }
    error_ = "invalid JSON at byte " + std::to_string(position) + ": " + reason;
    return false;
  }

  const std::string& error() const { return error_; }
  Json Take() { return std::move(root_); }

 private:
  struct Open_ {
    Json value;
    std::string key;
  };

  bool Open(Json container) {
    if (open_.size() >= static_cast<size_t>(Json::kMaxDepth)) {
      error_ = "JSON nested deeper than " + std::to_string(Json::kMaxDepth) + " levels";
      return false;
    }
    open_.push_back({std::move(container), {}});
    return true;
  }
  bool Close() {
    Json value = std::move(open_.back().value);
    open_.pop_back();
    return Add(std::move(value));
  }
  bool Add(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().value.is_array()) {
      open_.back().value.as_array().push_back(std::move(value));
    } else {
      open_.back().value.as_object().emplace_back(std::move(open_.back().key), std::move(value));
    }
    return true;
  }
  // Keeps the first position and the last value of a repeated key, as Python's dict does.
  static void Unique(Json::Object& members) {
    std::unordered_map<std::string_view, size_t, TextHash> first;
    first.reserve(members.size());
    std::vector<size_t> kept;
    for (size_t i = 0; i < members.size(); ++i) {
      const auto [it, is_new] = first.try_emplace(members[i].first, i);
      if (is_new) {
        kept.push_back(i);
      } else {
        members[it->second].second = std::move(members[i].second);
      }
    }
    if (kept.size() == members.size()) return;
    Json::Object unique;
    unique.reserve(kept.size());
    for (size_t i : kept) unique.push_back(std::move(members[i]));
    members = std::move(unique);
  }

  std::vector<Open_> open_;
  Json root_;
  std::string error_;
};

nlohmann::ordered_json ToNlohmann(const Json& value) {
  if (value.is_bool()) return value.as_bool();
  if (value.is_int()) return value.as_int();
  if (value.is_above_int()) return value.as_above_int();
  if (value.is_double()) return value.as_double();
  if (value.is_string()) return value.as_string();
  if (value.is_array()) {
    auto array = nlohmann::ordered_json::array();
    for (const Json& element : value.as_array()) array.push_back(ToNlohmann(element));
    return array;
  }
  if (value.is_object()) {
    auto object = nlohmann::ordered_json::object();
    auto& members = object.get_ref<nlohmann::ordered_json::object_t&>();
    for (const auto& [key, member] : value.as_object()) {
      members.push_back({key, ToNlohmann(member)});
    }
    return object;
  }
  return nullptr;
}

std::string DumpWith(const Json& value, int indent) {
  return ToNlohmann(value).dump(indent, ' ', false,
                                nlohmann::ordered_json::error_handler_t::replace);
}

Error Missing(std::string_view key) {
  return {ErrorCode::kCorrupt, "field '" + std::string(key) + "' is missing"};
}

Error WrongType(std::string_view key, std::string_view wanted, const Json& found) {
  return {ErrorCode::kCorrupt, "field '" + std::string(key) + "' must be " + std::string(wanted) +
                                   ", not " + std::string(found.type_name())};
}

// 3.0 counts as the integer 3: several writers print integers as floats.
bool IsIntegral(const Json& value) {
  if (value.is_int()) return true;
  if (!value.is_double()) return false;
  const double number = value.as_double();
  return std::nearbyint(number) == number && std::fabs(number) < 9.0e15;
}

}  // namespace

Json::Json(const Json& other) = default;
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(const Json& other) = default;
Json& Json::operator=(Json&& other) noexcept = default;
Json::~Json() = default;

Json::Json(uint64_t value) {
  if (value <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    value_ = static_cast<int64_t>(value);
  } else {
    value_ = value;
  }
}

Result<Json> Json::Parse(std::string_view text) {
  try {
    Builder builder;
    if (!nlohmann::json::sax_parse(text.begin(), text.end(), &builder)) {
      return {ErrorCode::kCorrupt, builder.error()};
    }
    return builder.Take();
  } catch (const std::bad_alloc&) {
    return {ErrorCode::kResourceExhausted,
            "its " + std::to_string(text.size()) + " bytes of JSON take more memory than there is"};
  }
}

Result<Json> Json::ParseFile(const std::string& path, size_t most_bytes) {
  KVASIR_TRY(const std::string text, ReadFile(path, most_bytes));
  Result<Json> parsed = Parse(text);
  if (!parsed.ok()) return WithContext(parsed.error(), path);
  return parsed;
}

std::string Json::Dump() const { return DumpWith(*this, -1); }
std::string Json::DumpPretty(int spaces) const { return DumpWith(*this, spaces); }

std::string_view Json::type_name() const {
  static constexpr std::string_view kNames[] = {"null",   "boolean", "integer", "number",
                                                "string", "array",   "object",  "integer"};
  return kNames[value_.index()];
}

bool Json::as_bool() const {
  KVASIR_CHECK(is_bool());
  return std::get<bool>(value_);
}
int64_t Json::as_int() const {
  KVASIR_CHECK(is_int());
  return std::get<int64_t>(value_);
}
uint64_t Json::as_above_int() const {
  KVASIR_CHECK(is_above_int());
  return std::get<uint64_t>(value_);
}
double Json::as_double() const {
  if (is_int()) return static_cast<double>(as_int());
  if (is_above_int()) return static_cast<double>(as_above_int());
  KVASIR_CHECK(is_double());
  return std::get<double>(value_);
}
const std::string& Json::as_string() const {
  KVASIR_CHECK(is_string());
  return std::get<std::string>(value_);
}
const Json::Array& Json::as_array() const {
  KVASIR_CHECK(is_array());
  return std::get<Array>(value_);
}
Json::Array& Json::as_array() {
  KVASIR_CHECK(is_array());
  return std::get<Array>(value_);
}
const Json::Object& Json::as_object() const {
  KVASIR_CHECK(is_object());
  return std::get<Object>(value_);
}
Json::Object& Json::as_object() {
  KVASIR_CHECK(is_object());
  return std::get<Object>(value_);
}

const Json* Json::Find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const Member& member : as_object()) {
    if (member.first == key) return &member.second;
  }
  return nullptr;
}

Json& Json::Set(std::string_view key, Json value) {
  if (is_null()) value_ = Object();
  for (Member& member : as_object()) {
    if (member.first == key) return member.second = std::move(value);
  }
  return as_object().emplace_back(std::string(key), std::move(value)).second;
}

void Json::Append(Json value) {
  if (is_null()) value_ = Array();
  as_array().push_back(std::move(value));
}

Result<int64_t> Json::GetInt(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr) return Missing(key);
  if (value->is_above_int()) {
    return Error{ErrorCode::kCorrupt, "field '" + std::string(key) + "' must be at most " +
                                          std::to_string(std::numeric_limits<int64_t>::max()) +
                                          ", not " + value->Dump()};
  }
  if (value->is_number() && !IsIntegral(*value)) {
    return Error{ErrorCode::kCorrupt,
                 "field '" + std::string(key) + "' must be an integer, not " + value->Dump()};
  }
  if (!IsIntegral(*value)) return WrongType(key, "an integer", *value);
  return value->is_int() ? value->as_int() : static_cast<int64_t>(value->as_double());
}
Result<double> Json::GetDouble(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr) return Missing(key);
  if (!value->is_number()) return WrongType(key, "a number", *value);
  return value->as_double();
}
Result<bool> Json::GetBool(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr) return Missing(key);
  if (!value->is_bool()) return WrongType(key, "a boolean", *value);
  return value->as_bool();
}
Result<std::string> Json::GetString(std::string_view key) const {
  const Json* value = Find(key);
  if (value == nullptr) return Missing(key);
  if (!value->is_string()) return WrongType(key, "a string", *value);
  return value->as_string();
}

namespace {
bool Absent(const Json& object, std::string_view key) {
  const Json* value = object.Find(key);
  return value == nullptr || value->is_null();
}
}  // namespace

Result<int64_t> Json::GetIntOr(std::string_view key, int64_t otherwise) const {
  return Absent(*this, key) ? Result<int64_t>(otherwise) : GetInt(key);
}
Result<double> Json::GetDoubleOr(std::string_view key, double otherwise) const {
  return Absent(*this, key) ? Result<double>(otherwise) : GetDouble(key);
}
Result<bool> Json::GetBoolOr(std::string_view key, bool otherwise) const {
  return Absent(*this, key) ? Result<bool>(otherwise) : GetBool(key);
}
Result<std::string> Json::GetStringOr(std::string_view key, std::string otherwise) const {
  return Absent(*this, key) ? Result<std::string>(std::move(otherwise)) : GetString(key);
}

}  // namespace kvasir
