// Values: construction, access and Python's type names.
// Deliberately no operators: those can fail and live in python_ops.
#include "kvasir/chat/value.h"

#include "kvasir/base/check.h"
#include "kvasir/chat/dict.h"
#include "kvasir/chat/object.h"

namespace kvasir::chat {

Value Value::Undefined(std::string message) {
  Value value;
  value.data_ = std::make_shared<const std::string>(std::move(message));
  return value;
}

Value Value::Bool(bool value, Origin origin) {
  Value result;
  result.data_ = value;
  result.origin_ = origin;
  return result;
}

Value Value::Int(int64_t value, Origin origin) {
  Value result;
  result.data_ = value;
  result.origin_ = origin;
  return result;
}

Value Value::Float(double value, Origin origin) {
  Value result;
  result.data_ = value;
  result.origin_ = origin;
  return result;
}

Value Value::String(std::shared_ptr<const Text> text) {
  Value result;
  result.data_ = std::move(text);
  return result;
}

Value Value::Of(std::shared_ptr<const Sequence> sequence) {
  Value result;
  result.data_ = std::move(sequence);
  return result;
}

Value Value::Of(std::shared_ptr<const Dict> dict) {
  Value result;
  result.data_ = std::move(dict);
  return result;
}

Value Value::Of(std::shared_ptr<Object> object) {
  Value result;
  result.data_ = std::move(object);
  return result;
}

const std::string& Value::undefined_message() const { return *std::get<UndefinedMessage>(data_); }

int64_t Value::as_integral() const {
  return is_bool() ? static_cast<int64_t>(as_bool()) : std::get<int64_t>(data_);
}

double Value::as_double() const {
  return is_float() ? std::get<double>(data_) : static_cast<double>(as_integral());
}

const Text& Value::text() const { return *std::get<std::shared_ptr<const Text>>(data_); }

const Sequence& Value::sequence() const {
  return *std::get<std::shared_ptr<const Sequence>>(data_);
}

const Dict& Value::dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }

Object& Value::object() const { return *std::get<std::shared_ptr<Object>>(data_); }

Origin Value::origin() const { return is_string() ? text().origin() : origin_; }

int Value::depth() const {
  if (is_sequence()) return sequence().depth;
  if (is_object()) return object().depth();
  return is_dict() ? dict().depth() : 0;
}

bool Value::IsSame(const Value& other) const {
  if (kind() != other.kind()) return false;
  switch (kind()) {
    case Kind::kUndefined:
      return std::get<UndefinedMessage>(data_) == std::get<UndefinedMessage>(other.data_);
    case Kind::kNone:
      return true;
    case Kind::kBool:
    case Kind::kInt:
      return as_integral() == other.as_integral();
    case Kind::kFloat:
      return as_double() == other.as_double();
    case Kind::kString:
      return &text() == &other.text() || bytes() == other.bytes();
    case Kind::kSequence:
      return &sequence() == &other.sequence();
    case Kind::kDict:
      return &dict() == &other.dict();
    case Kind::kObject:
      return &object() == &other.object();
  }
  return false;
}

std::string_view TypeName(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      return "Undefined";
    case Value::Kind::kNone:
      return "NoneType";
    case Value::Kind::kBool:
      return "bool";
    case Value::Kind::kInt:
      return "int";
    case Value::Kind::kFloat:
      return "float";
    case Value::Kind::kString:
      return value.text().is_markup() ? "Markup" : "str";
    case Value::Kind::kDict:
      return "dict";
    case Value::Kind::kObject:
      return value.object().type_name();
    case Value::Kind::kSequence:
      break;
  }
  switch (value.sequence().kind) {
    case SequenceKind::kList:
      return "list";
    case SequenceKind::kTuple:
      return "tuple";
    case SequenceKind::kRange:
      return "range";
    case SequenceKind::kIterator:
      return "generator";
    case SequenceKind::kItemsView:
      return "dict_items";
    case SequenceKind::kKeysView:
      return "dict_keys";
    case SequenceKind::kValuesView:
      return "dict_values";
  }
  return "object";
}

}  // namespace kvasir::chat
