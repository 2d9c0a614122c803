#include "kvasir/tokenizer/component_json.h"

#include "kvasir/tokenizer/utf8.h"

namespace kvasir {

Result<std::string> ComponentType(const Json& component) {
  if (!component.is_object()) {
    return {ErrorCode::kCorrupt,
            "must be an object with a 'type', not " + std::string(component.type_name())};
  }
  return component.GetString("type");
}

Error UnsupportedType(std::string_view type, std::string_view supported) {
  return {
      ErrorCode::kUnsupported,
      "type '" + std::string(type) + "' is not supported; supported are " + std::string(supported)};
}

Status ForEachComponent(const Json& component, std::string_view key,
                        const std::function<Status(const Json&)>& read) {
  const Json* array = component.Find(key);
  if (array == nullptr) {
    return {ErrorCode::kCorrupt, "field '" + std::string(key) + "' is missing"};
  }
  if (!array->is_array()) {
    return {ErrorCode::kCorrupt, "field '" + std::string(key) + "' must be an array, not " +
                                     std::string(array->type_name())};
  }
  for (size_t i = 0; i < array->as_array().size(); ++i) {
    const Status status = read(array->as_array()[i]);
    if (!status.ok()) {
      return WithContext(status.error(), std::string(key) + "[" + std::to_string(i) + "]");
    }
  }
  return {};
}

Result<std::string> GetCharacter(const Json& component, std::string_view key) {
  KVASIR_TRY(std::string text, component.GetString(key));
  if (text.empty() || DecodeUtf8(text, 0).size_bytes != text.size()) {
    return {ErrorCode::kCorrupt, "field '" + std::string(key) + "' must be one character, not '" +
                                     text.substr(0, 40) + "'"};
  }
  return text;
}

}  // namespace kvasir
