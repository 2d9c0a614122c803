// Value: what a template expression evaluates to, with Python's types.
// Deliberately not mutable: the sandbox of the reference forbids changing lists and dicts, so they
// are shared freely. Only the stateful helpers (namespace, loop, cycler, ...) are Objects.
#ifndef KVASIR_CHAT_VALUE_H_
#define KVASIR_CHAT_VALUE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "kvasir/chat/text.h"

namespace kvasir::chat {

class Dict;
class Object;
struct Sequence;

class Value {
 public:
  // In the order of the variant below.
  enum class Kind { kUndefined, kNone, kBool, kInt, kFloat, kString, kSequence, kDict, kObject };

  Value() = default;  // None
  // `message` says what is undefined; it is reported when the value is used.
  static Value Undefined(std::string message);
  static Value None() { return Value(); }
  // `origin` of a scalar: whether its digits may count as text of the template when printed.
  static Value Bool(bool value, Origin origin = Origin::kTemplate);
  static Value Int(int64_t value, Origin origin = Origin::kTemplate);
  static Value Float(double value, Origin origin = Origin::kTemplate);
  static Value String(std::shared_ptr<const Text> text);
  static Value Of(std::shared_ptr<const Sequence> sequence);
  static Value Of(std::shared_ptr<const Dict> dict);
  static Value Of(std::shared_ptr<Object> object);

  Kind kind() const { return static_cast<Kind>(data_.index()); }
  bool is_undefined() const { return kind() == Kind::kUndefined; }
  bool is_none() const { return kind() == Kind::kNone; }
  bool is_bool() const { return kind() == Kind::kBool; }
  bool is_int() const { return kind() == Kind::kInt; }  // not a bool
  bool is_float() const { return kind() == Kind::kFloat; }
  bool is_integral() const { return is_int() || is_bool(); }  // a bool is an int in Python
  bool is_number() const { return is_integral() || is_float(); }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_sequence() const { return kind() == Kind::kSequence; }
  bool is_dict() const { return kind() == Kind::kDict; }
  bool is_object() const { return kind() == Kind::kObject; }

  // REQUIRES: the matching is_...().
  const std::string& undefined_message() const;
  bool as_bool() const { return std::get<bool>(data_); }
  int64_t as_integral() const;
  double as_double() const;  // REQUIRES: is_number()
  const Text& text() const;
  const std::string& bytes() const { return text().bytes(); }
  const Sequence& sequence() const;
  const Dict& dict() const;
  Object& object() const;

  // Of a scalar as constructed; of a string that of its text; of None and containers kTemplate.
  Origin origin() const;
  // Levels of containers inside; 0 for scalars and objects.
  int depth() const;
  // Python's `is`.
  bool IsSame(const Value& other) const;

 private:
  using UndefinedMessage = std::shared_ptr<const std::string>;
  struct NoneType {};

  std::variant<UndefinedMessage, NoneType, bool, int64_t, double, std::shared_ptr<const Text>,
               std::shared_ptr<const Sequence>, std::shared_ptr<const Dict>,
               std::shared_ptr<Object>>
      data_ = NoneType{};
  Origin origin_ = Origin::kTemplate;
};

// Python's type name: "str", "NoneType", "list", ...
std::string_view TypeName(const Value& value);

enum class SequenceKind { kList, kTuple, kRange, kIterator, kItemsView, kKeysView, kValuesView };

struct Sequence {
  SequenceKind kind = SequenceKind::kList;
  std::vector<Value> items;
  int depth = 1;          // 1 + the deepest item's
  bool is_group = false;  // a tuple of groupby's: its items are also called grouper and list
  // Only of kIterator: how many items were taken. An iterator gives each item once.
  mutable size_t consumed = 0;

  bool indexable() const { return kind <= SequenceKind::kRange; }
  bool has_length() const { return kind != SequenceKind::kIterator; }
};

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_VALUE_H_
