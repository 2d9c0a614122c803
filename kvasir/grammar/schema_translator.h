// SchemaTranslator: a JSON schema as rules of a grammar.
// Deliberately refuses what it cannot hold to: every text of the grammar is valid against the
// schema.
#ifndef KVASIR_GRAMMAR_SCHEMA_TRANSLATOR_H_
#define KVASIR_GRAMMAR_SCHEMA_TRANSLATOR_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/base/text_hash.h"
#include "kvasir/grammar/grammar_syntax.h"
#include "kvasir/grammar/json_text.h"

namespace kvasir {

// Whether it is one of the keywords that are held to, at least where they stand alone.
bool IsSchemaKeyword(std::string_view name);

// What a schema's values are written as. In calls, whose arguments they are, they are objects,
// "(a=1, b=[True])", of the properties that the schema names, or of any where it names none.
enum class SchemaForm {
  kJson,
  kPythonCall,    // values within have Python's words
  kJsonWordCall,  // JSON's
  kJsonInTags,    // JSON whose strings have no "</" (JsonPlace)
};

struct SchemaOptions {
  // What messages and rules call the schema; schemas that share a syntax need different ones.
  std::string name = "schema";
  SchemaForm form = SchemaForm::kJson;
  // How many values may be looked at, which is lowered by those that were, so that several schemas
  // can share a limit; null: SchemaTranslator::kMostNodes.
  int64_t* nodes = nullptr;
};

class SchemaTranslator {
 public:
  using Expr = GrammarSyntax::Expr;

  // What one translation may cost, in values that are looked at.
  static constexpr int64_t kMostNodes = int64_t{1} << 22;

  // All must outlive this.
  SchemaTranslator(const Json& schema, GrammarSyntax* syntax, SchemaOptions options = {})
      : document_(schema),
        syntax_(*syntax),
        json_(syntax,
              options.form == SchemaForm::kPythonCall ? JsonWords::kPython : JsonWords::kJson,
              options.form == SchemaForm::kJsonInTags ? JsonPlace::kInTags : JsonPlace::kAlone),
        name_(std::move(options.name)),
        are_arguments_(options.form == SchemaForm::kPythonCall ||
                       options.form == SchemaForm::kJsonWordCall),
        nodes_(options.nodes != nullptr ? *options.nodes : own_nodes_) {}
  SchemaTranslator(const SchemaTranslator&) = delete;
  SchemaTranslator& operator=(const SchemaTranslator&) = delete;

  // The rule of the whole schema. ERRORS: kUnsupported, kInvalidArgument, kResourceExhausted; the
  // message begins with the path, as in "schema/properties/age/minimum: ".
  Result<GrammarSyntax::Rule> Translate();

 private:
  struct Pending {
    const Json* schema;
    std::string path;
    GrammarSyntax::Rule rule;
    bool are_arguments;
  };
  struct Property {
    std::string name;
    Expr member;  // the name, a colon or '=', and the value
    bool required;
  };
  enum class ObjectForm { kBraces, kArguments };
  struct TupleParts {
    const Json::Array& prefix;  // not empty
    const Json* items;          // may be null
    int min;
    int max;
    std::string prefix_path;
    std::string items_path;
  };

  Result<Expr> Value(const Json& schema, const std::string& path);
  Expr AnyValue();
  // REQUIRES for these: no $ref and no allOf at the top of the schema.
  Result<Expr> FlatValue(const Json& flat, const std::string& path);
  Result<Expr> Constrained(const Json& schema, const std::string& path);
  Result<Expr> Branches(const Json& schema, std::string_view keyword, const std::string& path);
  Result<Expr> Constants(const Json& schema, const std::vector<std::string_view>& types,
                         const std::string& path);
  Result<Expr> OfType(std::string_view type, const Json& schema, const std::string& path);
  Result<std::vector<std::string_view>> TypesOf(const Json& schema, const std::string& path) const;
  Status CheckExclusive(const Json::Array& branches, const std::string& path);

  Result<Expr> String(const Json& schema, const std::string& path);
  Result<Expr> Integer(const Json& schema, const std::string& path);
  Result<Expr> Number(const Json& schema, const std::string& path);
  Result<Expr> Array(const Json& schema, const std::string& path);
  Result<Expr> Tuple(const TupleParts& parts);
  Result<Expr> Object(const Json& schema, const std::string& path);
  // REQUIRES: !are_arguments_, as what is within arguments is none.
  Result<Expr> ObjectOf(const Json& schema, const std::string& path, ObjectForm form);
  Result<std::vector<Property>> Properties(const Json& schema, const std::string& path,
                                           ObjectForm form);
  Result<Expr> OtherProperty(const Json* additional, const std::vector<Property>& properties,
                             const std::string& path, ObjectForm form);
  Expr Members(const std::vector<Property>& properties, const std::optional<Expr>& other,
               ObjectForm form);

  // A call of the rule of what `reference` points to, which is translated later.
  Result<Expr> Reference(const Json& reference, const std::string& path);
  Result<const Json*> Resolve(const Json& reference, const std::string& path);
  // A member or an element of a part of the document; null: there is none.
  const Json* Step(const Json& from, const std::string& step);
  // The schema without $ref and allOf at its top, and without annotations.
  Result<Json> Flatten(const Json& schema, const std::string& path, int depth);

  Status CheckKeywords(const Json& schema, const std::string& path) const;
  // Bounds the work, which references can multiply.
  Status Spend(int64_t nodes, const std::string& path);

  const Json& document_;
  GrammarSyntax& syntax_;
  JsonText json_;
  const std::string name_;
  // By what is referred to, and whether by arguments.
  std::map<std::pair<const Json*, bool>, GrammarSyntax::Rule> rule_of_;
  // Of objects that references lead through: there may be many of both.
  std::map<const Json*, std::unordered_map<std::string_view, const Json*, TextHash>> members_of_;
  std::vector<Pending> pending_;
  bool are_arguments_;  // what is translated now
  int depth_ = 0;
  int64_t own_nodes_ = kMostNodes;
  int64_t& nodes_;  // that are left
};

}  // namespace kvasir

#endif  // KVASIR_GRAMMAR_SCHEMA_TRANSLATOR_H_
