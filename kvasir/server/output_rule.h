// OutputRule: what the text of an answer has to be, as requests say it.
// Deliberately not compiled: that wants a tokenizer, and is remembered (grammar_cache.h).
#ifndef KVASIR_SERVER_OUTPUT_RULE_H_
#define KVASIR_SERVER_OUTPUT_RULE_H_

#include <string>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/grammar/grammar_syntax.h"

namespace kvasir {

struct OutputRule {
  enum class Kind { kFree, kJsonObject, kJsonSchema, kGbnf };
  Kind kind = Kind::kFree;
  std::string field;  // of the request, for messages
  Json schema;        // kJsonSchema
  std::string gbnf;   // kGbnf

  bool is_free() const { return kind == Kind::kFree; }
  // Equal for equal rules.
  std::string Key() const;
};

// From response_format (OpenAI's, with llama-server's schema beside json_object), json_schema and
// grammar (llama-server's), structured_outputs and guided_... (vLLM's). `strict` makes no
// difference: a schema is always held to, or refused. ERRORS: as ParseChatRequest; more than one of
// them is kInvalidArgument.
Result<OutputRule> ParseOutputRule(const Json& body);

// Rules of a grammar, and what a text is.
struct OutputLanguage {
  GrammarSyntax syntax;
  GrammarSyntax::Expr text = 0;
};
// REQUIRES: !rule.is_free(). ERRORS: kInvalidArgument or kUnsupported "field '...' cannot be held
// to: " and what ParseGbnf or SchemaTranslator say.
Result<OutputLanguage> LanguageOf(const OutputRule& rule);
// What of a grammar cannot be used, said of the field it came from. A text that is too large is the
// request's fault, not the server's.
Error GrammarError(const Error& error, const std::string& field);

}  // namespace kvasir

#endif  // KVASIR_SERVER_OUTPUT_RULE_H_
