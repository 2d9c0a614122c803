// Budgets and value making.
// Deliberately single-threaded: one Runtime lives for one Render() call.
#include "kvasir/chat/runtime.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "kvasir/chat/large_integer.h"

namespace kvasir::chat {
namespace {

// Lists and dicts nested deeper are refused, so that walking and freeing them cannot overflow the
// stack. Twice what Json allows.
constexpr int kMaxValueDepth = 2 * Json::kMaxDepth;
// What the heap adds to a small object: control block, vector headers, malloc's own.
constexpr int64_t kObjectOverheadBytes = 96;

}  // namespace

Error TemplateError(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

Runtime::~Runtime() {
  for (const auto& object : adopted_) object->Clear();
}

Status Runtime::Step(int64_t count) {
  steps_ += count;
  if (steps_ > limits_.max_steps) {
    return Error{ErrorCode::kResourceExhausted,
                 "the template takes more than " + std::to_string(limits_.max_steps) +
                     " steps; it may loop without end, or max_steps is too small"};
  }
  if (over_memory_) {
    return Error{ErrorCode::kResourceExhausted, "the values of the template take more than " +
                                                    std::to_string(limits_.max_live_bytes) +
                                                    " bytes; send less, or raise max_live_bytes"};
  }
  if (over_depth_) {
    return Error{ErrorCode::kResourceExhausted, "lists and dicts are nested deeper than " +
                                                    std::to_string(kMaxValueDepth) + " levels"};
  }
  return Status();
}

Status Runtime::CheckStringSize(size_t bytes) const {
  if (bytes <= static_cast<size_t>(limits_.max_output_bytes)) return Status();
  return Error{ErrorCode::kResourceExhausted, "a string grows past max_output_bytes = " +
                                                  std::to_string(limits_.max_output_bytes)};
}

Status Runtime::CheckItemCount(size_t count) const {
  const auto limit = static_cast<size_t>(limits_.max_live_bytes) / sizeof(Value);
  if (count <= limit) return Status();
  return Error{ErrorCode::kResourceExhausted,
               "a list grows past " + std::to_string(limit) + " items (max_live_bytes)"};
}

void Runtime::Charge(int64_t bytes) {
  live_bytes_ += bytes;
  if (live_bytes_ > limits_.max_live_bytes) over_memory_ = true;
}

void Runtime::CheckDepth(int depth) {
  if (depth > kMaxValueDepth) over_depth_ = true;
}

Value Runtime::String(Text text) {
  const auto bytes = static_cast<int64_t>(text.size() + text.runs().size() * sizeof(Text::Run)) +
                     kObjectOverheadBytes;
  Charge(bytes);
  steps_ += static_cast<int64_t>(text.size() / 64);
  return Value::String(
      std::shared_ptr<const Text>(new Text(std::move(text)), [this, bytes](const Text* gone) {
        delete gone;
        Release(bytes);
      }));
}

Value Runtime::Make(SequenceKind kind, std::vector<Value> items) {
  return Make({kind, std::move(items)});
}

Value Runtime::Group(Value grouper, Value list) {
  Sequence group = {SequenceKind::kTuple, {std::move(grouper), std::move(list)}};
  group.is_group = true;
  return Make(std::move(group));
}

Value Runtime::Make(Sequence made) {
  const std::vector<Value>& items = made.items;
  int depth = 1;
  for (const Value& item : items) depth = std::max(depth, 1 + item.depth());
  CheckDepth(depth);
  // Nesting a value that is refused would make the tree that is then freed too deep.
  if (over_depth_) return Value::None();
  const auto bytes = static_cast<int64_t>(items.capacity() * sizeof(Value)) + kObjectOverheadBytes;
  Charge(bytes);
  steps_ += static_cast<int64_t>(items.size() / 8);
  made.depth = depth;
  auto* sequence = new Sequence(std::move(made));
  return Value::Of(std::shared_ptr<const Sequence>(sequence, [this, bytes](const Sequence* gone) {
    delete gone;
    Release(bytes);
  }));
}

Value Runtime::DictValue(Dict dict) {
  CheckDepth(dict.depth());
  if (over_depth_) return Value::None();
  // An entry costs two values and a hash node.
  const auto bytes =
      static_cast<int64_t>(dict.size() * (2 * sizeof(Value) + 64)) + kObjectOverheadBytes;
  Charge(bytes);
  steps_ += static_cast<int64_t>(dict.size() / 8);
  auto* shared = new Dict(std::move(dict));
  return Value::Of(std::shared_ptr<const Dict>(shared, [this, bytes](const Dict* gone) {
    delete gone;
    Release(bytes);
  }));
}

Value Runtime::Adopt(std::shared_ptr<Object> object) {
  Charge(4 * kObjectOverheadBytes);
  adopted_.push_back(object);
  return Value::Of(std::move(object));
}

Result<Value> Runtime::FromJson(const Json& json, Origin origin) {
  return FromJsonAt(json, origin, 0);
}

Result<Value> Runtime::FromJsonAt(const Json& json, Origin origin, int depth) {
  if (json.is_null()) return Value::None();
  if (json.is_bool()) return Value::Bool(json.as_bool(), origin);
  if (json.is_int()) return Value::Int(json.as_int(), origin);
  if (json.is_above_int()) return Value::Of(std::make_shared<LargeInteger>(json.as_above_int()));
  if (json.is_double()) return Value::Float(json.as_double(), origin);
  if (json.is_string()) return String(json.as_string(), origin);
  if (depth >= kMaxValueDepth) over_depth_ = true;
  KVASIR_TRY_OK(Step(0));
  if (json.is_array()) {
    std::vector<Value> items;
    items.reserve(json.as_array().size());
    for (const Json& item : json.as_array()) {
      KVASIR_TRY(Value value, FromJsonAt(item, origin, depth + 1));
      items.push_back(std::move(value));
    }
    return List(std::move(items));
  }
  Dict dict;
  for (const auto& [key, item] : json.as_object()) {
    KVASIR_TRY(Value value, FromJsonAt(item, origin, depth + 1));
    dict.Set(String(key, origin), std::move(value));
  }
  return DictValue(std::move(dict));
}

}  // namespace kvasir::chat
