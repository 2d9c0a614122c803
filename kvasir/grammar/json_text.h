// JsonText: expressions for pieces of JSON, as they may stand in generated text.
// Deliberately narrower than JSON where JSON has no end: blanks, digits and exponents are bounded.
#ifndef KVASIR_GRAMMAR_JSON_TEXT_H_
#define KVASIR_GRAMMAR_JSON_TEXT_H_

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/grammar/char_set.h"
#include "kvasir/grammar/grammar_syntax.h"

namespace kvasir {

// What true, false and null are called.
enum class JsonWords {
  kJson,
  kPython,  // True, False and None
};

// Where strings stand.
enum class JsonPlace {
  kAlone,
  // Between tags: no "</" is written, whose slash or sign is escaped, so that no string ends them.
  kInTags,
  // Between tags, without quotation marks and escapes. What has a '<' is not written.
  kBareInTags,
};

class JsonText {
 public:
  using Expr = GrammarSyntax::Expr;

  // `syntax` must outlive this.
  explicit JsonText(GrammarSyntax* syntax, JsonWords words = JsonWords::kJson,
                    JsonPlace place = JsonPlace::kAlone)
      : syntax_(*syntax), words_(words), place_(place) {}

  // Nothing, one blank, or a line end with up to 20 blanks and tabs.
  Expr Blank();
  JsonPlace place() const { return place_; }
  // Of the names of rules that depend on the place.
  std::string PlaceSuffix() const;
  // One character of a string, written in any way JSON has.
  Expr AnyChar();
  // One character of `set`, written as itself, or escaped in one way where it must be.
  Expr Char(const CharSet& set);
  Expr String();
  Expr Boolean();
  Expr Null();
  // At most 16 digits, and for numbers 16 decimals and an exponent of two digits.
  Expr Integer();
  Expr Number();
  Expr Value();
  Expr Object();
  Expr Array();
  // "(a=1, b=2)": the arguments of a call in Python, any there may be, with names of up to 64 ASCII
  // letters, digits and '_'.
  Expr Keywords();
  Expr Keyword();  // such a name
  // This value, with blanks where the others have them.
  Expr Constant(const Json& value);
  // A quoted string that is none of `names`. REQUIRES: names of at most kMaxNameChars characters.
  Expr KeyOtherThan(std::vector<std::string> names);
  static constexpr size_t kMaxNameChars = 256;

  // "a, b, c" of a piece that is `open` and `close`d: `element` {min, max} times.
  Expr List(std::string_view open, Expr element, int min, int max, std::string_view close);
  Expr Comma() { return syntax_.Sequence({syntax_.Literal(","), Blank()}); }
  Expr Colon() { return syntax_.Sequence({syntax_.Literal(":"), Blank()}); }
  // `body` as a rule of its own, so that using it often costs little.
  Expr Shared(Expr body);

 private:
  Expr Escape();  // as any JSON string may have one

  // The rule `name`, made by `build` when first asked for.
  template <typename Build>
  Expr Named(std::string_view name, const Build& build);
  // The same, where characters of strings are in it, or words too: each kind has its own.
  template <typename Build>
  Expr InPlace(std::string_view name, const Build& build);
  template <typename Build>
  Expr WithWords(std::string_view name, const Build& build);
  Expr OtherThan(const std::vector<std::u32string>& names, size_t begin, size_t end, size_t depth);

  GrammarSyntax& syntax_;
  const JsonWords words_;
  const JsonPlace place_;
  std::map<std::vector<std::pair<char32_t, char32_t>>, Expr> chars_;
};

}  // namespace kvasir

#endif  // KVASIR_GRAMMAR_JSON_TEXT_H_
