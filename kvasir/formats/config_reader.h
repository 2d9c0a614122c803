// ConfigReader: checked look-ups in a config.json whose text model may be nested in a wrapper.
// Deliberately knows no field by name: what a field means is model_config.cc's business.
#ifndef KVASIR_FORMATS_CONFIG_READER_H_
#define KVASIR_FORMATS_CONFIG_READER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"

namespace kvasir {

// Looks in the text model's object first, then in the wrapper around it (the same object when there
// is none). Absent and null are alike, but for IsNull. Borrows both. Errors name the field.
class ConfigReader {
 public:
  ConfigReader(const Json& text, const Json& outer) : text_(text), outer_(outer) {}

  // Null when the field is absent or null in both.
  const Json* Find(std::string_view field) const;
  // The object that holds the field; the text model's when neither does.
  const Json& ObjectWith(std::string_view field) const;
  // Written down as null.
  bool IsNull(std::string_view field) const;

  // An integer in [least, most]; `otherwise` when absent, an error when that is out of range too.
  Result<int64_t> Integer(std::string_view field, int64_t otherwise, int64_t least,
                          int64_t most) const;
  Result<double> Number(std::string_view field, double otherwise, double least, double most) const;
  Result<bool> Flag(std::string_view field, bool otherwise) const;
  Result<std::string> Text(std::string_view field, std::string otherwise) const;

  Error Bad(std::string_view field, const std::string& reason,
            ErrorCode code = ErrorCode::kCorrupt) const;

 private:
  const Json& text_;
  const Json& outer_;
};

}  // namespace kvasir

#endif  // KVASIR_FORMATS_CONFIG_READER_H_
