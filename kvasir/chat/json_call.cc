#include "kvasir/chat/json_call.h"

#include <algorithm>
#include <utility>

#include "kvasir/base/json.h"

namespace kvasir {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr size_t kMaxKeyBytes = 64;

bool IsBlank(char c) { return kBlanks.find(c) != kBlanks.npos; }

bool IsArguments(std::string_view key) { return key == "arguments" || key == "parameters"; }
bool IsName(std::string_view key) { return key == "name"; }
// Members that calls have beside those; anything else means that the object is no call.
bool IsIgnored(std::string_view key) { return key == "type" || key == "id"; }

}  // namespace

size_t JsonValueScanner::Push(std::string_view text) {
  size_t i = 0;
  for (; i < text.size() && !is_done_; ++i) {
    const char c = text[i];
    if (in_string_) {
      if (is_escaped_) {
        is_escaped_ = false;
      } else if (c == '\\') {
        is_escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
        is_done_ = kind_ == Kind::kString;
      }
      continue;
    }
    if (kind_ == Kind::kNone) {
      if (IsBlank(c)) continue;
      kind_ = c == '"' ? Kind::kString : c == '{' || c == '[' ? Kind::kNested : Kind::kOther;
    }
    const bool is_delimiter = c == ',' || c == '}' || c == ']' || IsBlank(c);
    if (kind_ == Kind::kOther && is_delimiter) {
      is_done_ = true;
      return i;  // it is not the value's
    }
    in_string_ = c == '"';
    depth_ += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
    if (kind_ == Kind::kNested && depth_ == 0) is_done_ = true;
  }
  return i;
}

size_t JsonCallScanner::Push(std::string_view text, AnswerParts* parts) {
  size_t at = 0;
  while (at < text.size() && state_ == State::kReading) {
    if (place_ == Place::kKey || place_ == Place::kValue) {
      const size_t read = ReadValue(text.substr(at), parts);
      at += read;
      continue;
    }
    const char c = text[at++];
    raw_ += c;
    if (IsBlank(c)) continue;
    if (place_ == Place::kMember && c == '}') {
      End(parts);
    } else {
      Step(c);
    }
    if (place_ == Place::kKey) {  // the quotation mark is the key's
      --at;
      raw_.pop_back();
    }
  }
  return at;
}

void JsonCallScanner::Step(char c) {
  switch (place_) {
    case Place::kBegin:
      if (c != '{') state_ = State::kNoCall;
      place_ = Place::kMember;
      return;
    case Place::kMember:
      if (c == ',') return;
      if (c != '"') state_ = is_begun_ ? State::kDone : State::kNoCall;
      place_ = Place::kKey;
      scanner_ = {};
      value_.clear();
      return;
    case Place::kColon:
      if (c != ':') state_ = is_begun_ ? State::kDone : State::kNoCall;
      place_ = Place::kValue;
      scanner_ = {};
      value_.clear();
      return;
    case Place::kKey:
    case Place::kValue:
      return;
  }
}

size_t JsonCallScanner::ReadValue(std::string_view text, AnswerParts* parts) {
  // A string is held to its end, where it can be decoded; objects go out at once.
  // What a call says twice counts once.
  const bool may_stream = is_begun_ && !has_arguments_ && IsArguments(key_);
  if (place_ == Place::kValue && !is_streaming_ && may_stream) {
    const size_t first = text.find_first_not_of(kBlanks);
    if (value_.find_first_not_of(kBlanks) == value_.npos && first != text.npos &&
        text[first] == '{')
      is_streaming_ = true;
  }
  // No more of a key than says that it is too long, however the text comes.
  if (place_ == Place::kKey) text = text.substr(0, kMaxKeyBytes + 1 - value_.size());
  const size_t read = scanner_.Push(text);
  std::string_view piece = text.substr(0, read);
  raw_ += piece;
  if (is_streaming_) {
    if (!has_arguments_) piece.remove_prefix(std::min(piece.find_first_not_of(kBlanks), read));
    if (!piece.empty()) {
      parts->push_back({AnswerPart::Kind::kArguments, std::string(piece)});
      has_arguments_ = true;
    }
  } else {
    value_ += piece;
  }
  if (place_ == Place::kKey && value_.size() > kMaxKeyBytes) {
    state_ = is_begun_ ? State::kDone : State::kNoCall;
  } else if (scanner_.is_done()) {
    EndValue(parts);
  }
  return read;
}

void JsonCallScanner::EndValue(AnswerParts* parts) {
  if (std::exchange(is_streaming_, false)) {
    place_ = Place::kMember;
    return;
  }
  const auto value = Json::Parse(value_);
  if (place_ == Place::kKey) {
    key_ = value.ok() && value->is_string() ? value->as_string() : "";
    place_ = Place::kColon;
    if (!is_begun_ && !IsName(key_) && !IsArguments(key_) && !IsIgnored(key_)) {
      state_ = State::kNoCall;
    }
    return;
  }
  place_ = Place::kMember;
  if (IsName(key_) && !is_begun_) {
    const bool is_name = value.ok() && value->is_string() && !value->as_string().empty();
    name_ = is_name ? value->as_string() : "";
    if (!TakeName()) {
      state_ = State::kNoCall;
    } else {
      Begin(parts);
    }
  } else if (IsArguments(key_) && !has_arguments_ && arguments_.empty()) {
    // Some models write the object as a string, or null for none.
    const bool is_text = value.ok() && value->is_string();
    const bool is_none = value.ok() && value->is_null();
    const size_t first = std::min(value_.find_first_not_of(kBlanks), value_.size());
    arguments_ = is_text ? value->as_string() : is_none ? "{}" : value_.substr(first);
    if (is_begun_) Begin(parts);
  }
}

bool JsonCallScanner::TakeName() {
  if (name_.empty()) return false;
  return names_ == nullptr || std::find(names_->begin(), names_->end(), name_) != names_->end();
}

// Gives out the name, once, and arguments that were held.
void JsonCallScanner::Begin(AnswerParts* parts) {
  if (!std::exchange(is_begun_, true)) parts->push_back({AnswerPart::Kind::kCall, name_});
  if (arguments_.empty() || has_arguments_) return;
  parts->push_back({AnswerPart::Kind::kArguments, arguments_});
  has_arguments_ = true;
}

void JsonCallScanner::End(AnswerParts* parts) {
  if (!is_begun_) {
    state_ = State::kNoCall;
    return;
  }
  state_ = State::kDone;
  if (!has_arguments_) parts->push_back({AnswerPart::Kind::kArguments, "{}"});
  has_arguments_ = true;
}

}  // namespace kvasir
