// RelaxedSchema: what remains of a JSON schema without the keywords that no grammar here holds to.
// Deliberately only leaves out: every value that is valid against the schema stays so.
#ifndef KVASIR_GRAMMAR_SCHEMA_RELAX_H_
#define KVASIR_GRAMMAR_SCHEMA_RELAX_H_

#include "kvasir/base/json.h"

namespace kvasir {

// For schemas that guide and need not be kept to, as those of functions. What is malformed is left
// out as well.
Json RelaxedSchema(const Json& schema);

}  // namespace kvasir

#endif  // KVASIR_GRAMMAR_SCHEMA_RELAX_H_
