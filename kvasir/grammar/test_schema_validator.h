// A small JSON schema validator for tests, written from the standard (draft 2020-12).
// Deliberately shares nothing with the translator it judges.
#ifndef KVASIR_GRAMMAR_TEST_SCHEMA_VALIDATOR_H_
#define KVASIR_GRAMMAR_TEST_SCHEMA_VALIDATOR_H_

#include <string>

#include "kvasir/base/json.h"

namespace kvasir {

// Empty if `value` is valid against `schema`, a part of `document`; otherwise what is wrong.
// Knows the keywords that the tests use, and fails on any other.
std::string SchemaViolation(const Json& value, const Json& schema, const Json& document);

}  // namespace kvasir

#endif  // KVASIR_GRAMMAR_TEST_SCHEMA_VALIDATOR_H_
