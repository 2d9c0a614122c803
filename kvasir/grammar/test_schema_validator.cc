#include "kvasir/grammar/test_schema_validator.h"

#include <cmath>
#include <regex>

namespace kvasir {
namespace {

size_t Characters(const std::string& text) {
  size_t count = 0;
  for (const char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return count;
}

bool Same(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return a.as_double() == b.as_double();
  if (a.is_array() && b.is_array()) {
    if (a.as_array().size() != b.as_array().size()) return false;
    for (size_t i = 0; i < a.as_array().size(); ++i) {
      if (!Same(a.as_array()[i], b.as_array()[i])) return false;
    }
    return true;
  }
  if (a.is_object() && b.is_object()) {
    if (a.as_object().size() != b.as_object().size()) return false;
    for (const auto& [name, member] : a.as_object()) {
      if (b.Find(name) == nullptr || !Same(member, *b.Find(name))) return false;
    }
    return true;
  }
  return a == b;
}

bool IsOfType(const Json& value, const std::string& type) {
  if (type == "number") return value.is_number();
  if (type == "integer") {
    return value.is_int() ||
           (value.is_double() && std::floor(value.as_double()) == value.as_double());
  }
  return value.type_name() == type;
}

// Only "#", and steps without escapes.
const Json* Target(const std::string& reference, const Json& document) {
  const Json* at = &document;
  size_t begin = 1;
  while (begin < reference.size()) {
    const size_t end = std::min(reference.find('/', begin + 1), reference.size());
    at = at->Find(reference.substr(begin + 1, end - begin - 1));
    if (at == nullptr) return nullptr;
    begin = end;
  }
  return at;
}

bool IsLeapYear(int year) { return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0); }

bool IsDate(const std::string& text) {
  if (!std::regex_match(text, std::regex("\\d{4}-\\d{2}-\\d{2}"))) return false;
  const int month = std::stoi(text.substr(5, 2));
  const int day = std::stoi(text.substr(8, 2));
  constexpr int kDays[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
  if (month < 1 || month > 12 || day < 1) return false;
  const int days = month == 2 && IsLeapYear(std::stoi(text)) ? 29 : kDays[month - 1];
  return day <= days;
}

bool IsTime(const std::string& text) {
  std::smatch match;
  const std::regex shape("(\\d\\d):(\\d\\d):(\\d\\d)(\\.\\d+)?(Z|[+-](\\d\\d):(\\d\\d))");
  if (!std::regex_match(text, match, shape)) return false;
  const auto below = [&](size_t group, int limit) {
    return !match[group].matched || std::stoi(match[group].str()) < limit;
  };
  return below(1, 24) && below(2, 60) && below(3, 60) && below(6, 24) && below(7, 60);
}

bool HasFormat(const std::string& text, const std::string& format) {
  if (format == "date") return IsDate(text);
  if (format == "time") return IsTime(text);
  if (format == "date-time")
    return IsDate(text.substr(0, 10)) && text[10] == 'T' && IsTime(text.substr(11));
  if (format == "uuid") {
    return std::regex_match(text, std::regex("[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"));
  }
  if (format == "email") {
    return std::regex_match(text, std::regex("[^@ \"]+@[A-Za-z0-9.-]+")) && text.size() <= 254;
  }
  if (format == "ipv4") {
    std::smatch match;
    if (!std::regex_match(text, match, std::regex("(\\d+)\\.(\\d+)\\.(\\d+)\\.(\\d+)")))
      return false;
    for (size_t i = 1; i <= 4; ++i) {
      if (std::stoi(match[i].str()) > 255) return false;
    }
    return true;
  }
  return format == "path";  // nobody says what it means
}

class Validator {
 public:
  explicit Validator(const Json& document) : document_(document) {}

  std::string Check(const Json& value, const Json& schema) const {
    if (schema.is_bool()) return schema.as_bool() ? "" : "nothing is valid";
    for (const auto& [keyword, argument] : schema.as_object()) {
      std::string violation = CheckKeyword(value, schema, keyword, argument);
      if (!violation.empty()) return keyword + ": " + violation + " in " + value.Dump();
    }
    return "";
  }

 private:
  static std::string Unless(bool holds) { return holds ? "" : "violated"; }

  std::string CheckKeyword(const Json& value, const Json& schema, const std::string& keyword,
                           const Json& argument) const {
    if (keyword == "$defs" || keyword == "title" || keyword == "description") return "";
    if (keyword == "type") return Unless(HasAnyType(value, argument));
    if (keyword == "const") return Unless(Same(value, argument));
    if (keyword == "enum") return Unless(CountSame(value, argument) > 0);
    if (keyword == "$ref") return Check(value, *Target(argument.as_string(), document_));
    if (keyword == "anyOf") return Unless(CountValid(value, argument) > 0);
    if (keyword == "oneOf") return Unless(CountValid(value, argument) == 1);
    if (keyword == "allOf")
      return Unless(CountValid(value, argument) == argument.as_array().size());
    if (value.is_number()) return CheckNumber(value.as_double(), keyword, argument);
    if (value.is_string()) return CheckString(value.as_string(), keyword, argument);
    if (value.is_array()) return CheckArray(value.as_array(), schema, keyword, argument);
    if (value.is_object()) return CheckObject(value, schema, keyword, argument);
    return "";
  }

  static bool HasAnyType(const Json& value, const Json& types) {
    if (types.is_string()) return IsOfType(value, types.as_string());
    for (const Json& type : types.as_array()) {
      if (IsOfType(value, type.as_string())) return true;
    }
    return false;
  }

  static size_t CountSame(const Json& value, const Json& list) {
    size_t count = 0;
    for (const Json& one : list.as_array()) count += Same(value, one) ? 1 : 0;
    return count;
  }

  size_t CountValid(const Json& value, const Json& schemas) const {
    size_t count = 0;
    for (const Json& schema : schemas.as_array()) count += Check(value, schema).empty() ? 1 : 0;
    return count;
  }

  static std::string CheckNumber(double value, const std::string& keyword, const Json& argument) {
    if (keyword == "minimum") return Unless(value >= argument.as_double());
    if (keyword == "maximum") return Unless(value <= argument.as_double());
    if (keyword == "exclusiveMinimum") return Unless(value > argument.as_double());
    if (keyword == "exclusiveMaximum") return Unless(value < argument.as_double());
    if (keyword == "multipleOf") {
      const double near = std::round(value / argument.as_double()) * argument.as_double();
      return Unless(std::fabs(value) >= 0x1p53 ||
                    std::fabs(value - near) <= 1e-12 * std::fabs(near));
    }
    if (keyword == "format") {
      const std::string& format = argument.as_string();
      if (format == "int32") return Unless(std::fabs(value + 0.5) < 0x1p31);
      if (format == "uint8") return Unless(value >= 0 && value < 256);
      if (format == "uint64") return Unless(value >= 0 && value < 0x1p64);
    }
    return "unknown keyword for numbers";
  }

  static std::string CheckString(const std::string& value, const std::string& keyword,
                                 const Json& argument) {
    if (keyword == "minLength") return Unless(Characters(value) >= Size(argument));
    if (keyword == "maxLength") return Unless(Characters(value) <= Size(argument));
    if (keyword == "pattern") {
      return Unless(std::regex_search(value, std::regex(argument.as_string())));
    }
    if (keyword == "format") return Unless(HasFormat(value, argument.as_string()));
    return "unknown keyword for strings";
  }

  std::string CheckArray(const Json::Array& value, const Json& schema, const std::string& keyword,
                         const Json& argument) const {
    if (keyword == "minItems") return Unless(value.size() >= Size(argument));
    if (keyword == "maxItems") return Unless(value.size() <= Size(argument));
    const Json* prefix = schema.Find("prefixItems");
    const size_t first = prefix != nullptr ? prefix->as_array().size() : 0;
    for (size_t i = 0; i < value.size(); ++i) {
      std::string violation;
      if (keyword == "prefixItems" && i < first)
        violation = Check(value[i], argument.as_array()[i]);
      if (keyword == "items" && i >= first) violation = Check(value[i], argument);
      if (!violation.empty()) return "element " + std::to_string(i) + ": " + violation;
    }
    return "";
  }

  std::string CheckObject(const Json& value, const Json& schema, const std::string& keyword,
                          const Json& argument) const {
    const size_t size = value.as_object().size();
    if (keyword == "minProperties") return Unless(size >= Size(argument));
    if (keyword == "maxProperties") return Unless(size <= Size(argument));
    if (keyword == "required") {
      for (const Json& name : argument.as_array()) {
        if (value.Find(name.as_string()) == nullptr) return "lacks " + name.as_string();
      }
    }
    const Json* properties = schema.Find("properties");
    for (const auto& [name, member] : value.as_object()) {
      std::string violation;
      const Json* known = properties != nullptr ? properties->Find(name) : nullptr;
      if (keyword == "properties" && known != nullptr) violation = Check(member, *known);
      if (keyword == "additionalProperties" && known == nullptr)
        violation = Check(member, argument);
      if (!violation.empty()) return name + ": " + violation;
    }
    return "";
  }

  static size_t Size(const Json& argument) { return static_cast<size_t>(argument.as_double()); }

  const Json& document_;
};

}  // namespace

std::string SchemaViolation(const Json& value, const Json& schema, const Json& document) {
  return Validator(document).Check(value, schema);
}

}  // namespace kvasir
