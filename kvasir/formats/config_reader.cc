#include "kvasir/formats/config_reader.h"

#include <utility>

namespace kvasir {

const Json* ConfigReader::Find(std::string_view field) const {
  for (const Json* object : {&text_, &outer_}) {
    const Json* value = object->Find(field);
    if (value != nullptr && !value->is_null()) return value;
  }
  return nullptr;
}

const Json& ConfigReader::ObjectWith(std::string_view field) const {
  const Json* value = text_.Find(field);
  return value == nullptr || value->is_null() ? outer_ : text_;
}

bool ConfigReader::IsNull(std::string_view field) const {
  const Json* value = text_.Find(field);
  return value != nullptr && value->is_null();
}

Result<int64_t> ConfigReader::Integer(std::string_view field, int64_t otherwise, int64_t least,
                                      int64_t most) const {
  const bool is_absent = Find(field) == nullptr;
  KVASIR_TRY(const int64_t value, ObjectWith(field).GetIntOr(field, otherwise));
  if (is_absent && (value < least || value > most)) return Bad(field, "is missing");
  if (value < least || value > most) {
    return Bad(field, "is " + std::to_string(value) + ", must be between " + std::to_string(least) +
                          " and " + std::to_string(most));
  }
  return value;
}

Result<double> ConfigReader::Number(std::string_view field, double otherwise, double least,
                                    double most) const {
  KVASIR_TRY(const double value, ObjectWith(field).GetDoubleOr(field, otherwise));
  // Negated so that NaN is refused too.
  if (!(value >= least && value <= most)) {
    return Bad(field, "is " + Json(value).Dump() + ", must be between " + Json(least).Dump() +
                          " and " + Json(most).Dump());
  }
  return value;
}

Result<bool> ConfigReader::Flag(std::string_view field, bool otherwise) const {
  return ObjectWith(field).GetBoolOr(field, otherwise);
}

Result<std::string> ConfigReader::Text(std::string_view field, std::string otherwise) const {
  return ObjectWith(field).GetStringOr(field, std::move(otherwise));
}

Error ConfigReader::Bad(std::string_view field, const std::string& reason, ErrorCode code) const {
  return {code, "field '" + std::string(field) + "' " + reason};
}

}  // namespace kvasir
