// Values of arguments that stand without quotation marks, whose schema says which of them are text.
// Deliberately not a validator: a schema is read for types and for the texts it lists.
#ifndef KVASIR_CHAT_ARGUMENT_VALUE_H_
#define KVASIR_CHAT_ARGUMENT_VALUE_H_

#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/json.h"

namespace kvasir {

// What a JSON schema lets a value be.
struct ArgumentTypes {
  enum Type : unsigned {
    kNull = 1,
    kBoolean = 2,
    kInteger = 4,
    kFraction = 8,  // numbers that are no integers
    kString = 16,
    kArray = 32,
    kObject = 64,
  };
  static constexpr unsigned kAll = 127;

  unsigned allowed = kAll;
  unsigned unlimited = kAll;       // of these every value is valid, as far as can be told
  std::vector<std::string> texts;  // strings that it lists; `allowed` has kString for any others

  bool Allows(unsigned types) const { return (allowed & types) != 0; }
  bool may_be_text() const { return Allows(kString) || !texts.empty(); }
};

// `document`: what "$ref" points into. Where the schema is malformed, leads back to itself or is
// too large to look through, all is allowed.
ArgumentTypes TypesOfSchema(const Json& schema, const Json& document);

// Of a function's argument; `parameters`: its schema, or null.
ArgumentTypes TypesOfArgument(const Json* parameters, std::string_view argument);

// The parameters of the tool of this name, as OpenAI has them; null: there are none.
const Json* ParametersOf(const Json& tools, std::string_view function);

// What `text` says: a text where that is listed or nothing else is allowed that it may be, else
// JSON, where it is any. Python's words count where their types are asked for.
Json ArgumentValue(std::string_view text, const ArgumentTypes& types);

}  // namespace kvasir

#endif  // KVASIR_CHAT_ARGUMENT_VALUE_H_
