// Arguments that stand between tags, "<arg_key>k</arg_key><arg_value>v</arg_value>", strings
// without quotation marks, as a grammar (GLM-4.5). Deliberately one value after the other: what a
// schema says of several at once is not held to.
#ifndef KVASIR_SERVER_TAGGED_ARGUMENTS_H_
#define KVASIR_SERVER_TAGGED_ARGUMENTS_H_

#include <cstdint>
#include <string>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/grammar/grammar_syntax.h"

namespace kvasir {

// The arguments of a tool's `function`, in the order of its schema, each with a line end around its
// parts or none. A value that cannot be held to may be any text, or any JSON where it is no string;
// of "strict" functions it is refused. What is read of them (ArgumentValue) is valid.
// `nodes`: how many values of schemas may be looked at, which is lowered (SchemaOptions).
// ERRORS: kUnsupported "field 'tools[0].function.parameters' ...", where `field` is "tools[0]".
Result<GrammarSyntax::Expr> TaggedArgumentsExpr(const Json& function, const std::string& field,
                                                int64_t* nodes, GrammarSyntax* rules);

}  // namespace kvasir

#endif  // KVASIR_SERVER_TAGGED_ARGUMENTS_H_
