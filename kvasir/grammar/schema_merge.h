// What JSON schemas say together, for allOf and for keywords beside $ref, anyOf and oneOf.
// Deliberately blind to $ref and allOf themselves: SchemaTranslator resolves those first.
#ifndef KVASIR_GRAMMAR_SCHEMA_MERGE_H_
#define KVASIR_GRAMMAR_SCHEMA_MERGE_H_

#include <array>
#include <string_view>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"

namespace kvasir {

inline constexpr std::array<std::string_view, 7> kSchemaTypes = {
    "object", "array", "string", "number", "integer", "boolean", "null"};

// Keywords that say nothing about which values are valid.
bool IsSchemaAnnotation(std::string_view keyword);

// A schema that is valid for the values valid for both; `false` where these exclude each other.
// What $ref and allOf at their tops add is left out. Takes time in proportion to their sizes.
// ERRORS: kUnsupported, kInvalidArgument, naming the keyword that cannot be merged or is malformed.
Result<Json> MergeSchemas(const Json& a, const Json& b);

// No value is valid for both, as far as types, constants and required properties show: what $ref
// and allOf add is not looked into. Takes time in proportion to their sizes.
bool AreSchemasExclusive(const Json& a, const Json& b, int depth = 0);

}  // namespace kvasir

#endif  // KVASIR_GRAMMAR_SCHEMA_MERGE_H_
