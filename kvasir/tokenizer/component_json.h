// Reading components of tokenizer.json: their type, their parts, and errors that say where.
// Deliberately without defaults: each component knows its own.
#ifndef KVASIR_TOKENIZER_COMPONENT_JSON_H_
#define KVASIR_TOKENIZER_COMPONENT_JSON_H_

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"

namespace kvasir {

// The member "type". ERRORS: kCorrupt if this is no object or has no such string.
Result<std::string> ComponentType(const Json& component);

// kUnsupported: "type 'X' is not supported; supported are ...".
Error UnsupportedType(std::string_view type, std::string_view supported);

// Calls `read` for every element of the array `key`. ERRORS: kCorrupt if it is missing or no array;
// those of `read`, prefixed by "key[index]".
Status ForEachComponent(const Json& component, std::string_view key,
                        const std::function<Status(const Json&)>& read);

// The member `key`, which must be a string of one character.
Result<std::string> GetCharacter(const Json& component, std::string_view key);

}  // namespace kvasir

#endif  // KVASIR_TOKENIZER_COMPONENT_JSON_H_
