#include "kvasir/chat/python_call.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>

#include "kvasir/base/text_hash.h"
#include "kvasir/chat/python_escapes.h"

namespace kvasir {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kQuotes = "'\"";
// What names of arguments end at, or cannot have.
constexpr std::string_view kKeywordEnds = "=,'\"()[]{}\r\n";
// Of a value within an argument, so that arguments have no more levels than Json::Parse reads.
constexpr int kMaxDepth = Json::kMaxDepth - 2;
// More than any model writes at once, and little beside its weights.
constexpr size_t kMaxTextBytes = size_t{4} << 20;

// ASCII's, whatever the locale is.
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
// Tools may have names that Python has not.
bool IsNameCharacter(char c) {
  return IsLetter(c) || IsDigit(c) || c == '_' || c == '-' || c == '.' ||
         static_cast<unsigned char>(c) >= 0x80;
}

void DropBlanks(std::string_view* text) {
  text->remove_prefix(std::min(text->find_first_not_of(kBlanks), text->size()));
}

// The members of an object, as JSON; of those of one name the last counts, in the first's place.
class Members {
 public:
  void Set(std::string key, std::string value) {
    const auto [entry, is_new] = index_of_.try_emplace(key, members_.size());
    if (is_new) members_.emplace_back(std::move(key), "");
    members_[entry->second].second = std::move(value);
  }
  void AppendTo(std::string* json) const {
    std::string_view before = "{";
    for (const auto& [key, value] : members_) {
      json->append(before).append(key).append(":").append(value);
      before = ",";
    }
    json->append(members_.empty() ? "{}" : "}");
  }

 private:
  std::vector<std::pair<std::string, std::string>> members_;
  std::unordered_map<std::string, size_t, TextHash> index_of_;
};

// Which mark ends a string.
enum class StringEnd {
  kFirst,        // the first that is not escaped
  kBehindValue,  // of those, the first that what may follow a value follows
};

// Reads one call; values are written as JSON.
class CallReader {
 public:
  CallReader(std::string_view text, StringEnd string_end) : text_(text), string_end_(string_end) {}

  std::optional<CallText> Read();
  std::string_view rest() const { return text_; }
  // Read() failed as the text ends within a string.
  bool ended_in_string() const { return ended_in_string_; }

 private:
  bool Take(std::string_view prefix) {
    DropBlanks(&text_);
    if (!text_.starts_with(prefix)) return false;
    text_.remove_prefix(prefix.size());
    return true;
  }
  // Commas between elements, also behind the last one. False: neither a comma nor `close`.
  bool TakeComma(std::string_view close) {
    if (Take(",")) return true;
    DropBlanks(&text_);
    return text_.starts_with(close);
  }

  std::optional<std::string> ReadKeyword();
  bool ReadValue(int depth, std::string* json);
  bool ReadList(std::string_view close, int depth, std::string* json);
  bool ReadDict(int depth, std::string* json);
  bool ReadNumber(std::string* json);
  bool ReadWord(std::string* json);
  // One or more of them, which Python joins.
  bool ReadStrings(std::string* json);
  bool ReadString(std::string* value);
  bool EndsString(std::string_view behind) const;

  std::string_view text_;
  const StringEnd string_end_;
  bool ended_in_string_ = false;
};

std::optional<CallText> CallReader::Read() {
  DropBlanks(&text_);
  const size_t name_size = static_cast<size_t>(
      std::find_if_not(text_.begin(), text_.end(), IsNameCharacter) - text_.begin());
  CallText call{.name = std::string(text_.substr(0, name_size)), .arguments = {}};
  text_.remove_prefix(name_size);
  if (call.name.empty() || !Take("(")) return std::nullopt;
  Members arguments;
  while (!Take(")")) {
    const auto keyword = ReadKeyword();
    std::string value;
    if (!keyword || !ReadValue(0, &value) || !TakeComma(")")) return std::nullopt;
    arguments.Set(Json(*keyword).Dump(), std::move(value));
  }
  arguments.AppendTo(&call.arguments);
  return call;
}

// Properties may have names that Python has not, with blanks or signs within.
std::optional<std::string> CallReader::ReadKeyword() {
  DropBlanks(&text_);
  const size_t size = text_.find_first_of(kKeywordEnds);
  if (size == text_.npos || size == 0 || text_[size] != '=') return std::nullopt;
  std::string_view name = text_.substr(0, size);
  name = name.substr(0, name.find_last_not_of(kBlanks) + 1);
  text_.remove_prefix(size + 1);
  return std::string(name);
}

bool CallReader::ReadValue(int depth, std::string* json) {
  if (depth > kMaxDepth) return false;
  if (Take("[")) return ReadList("]", depth, json);
  if (Take("(")) return ReadList(")", depth, json);
  if (Take("{")) return ReadDict(depth, json);
  if (text_.empty()) return false;
  const char first = text_.front();
  if (IsDigit(first) || first == '.' || first == '+' || first == '-') return ReadNumber(json);
  const size_t letters =
      static_cast<size_t>(std::find_if_not(text_.begin(), text_.end(), IsLetter) - text_.begin());
  const bool is_string =
      letters < text_.size() && kQuotes.find(text_[letters]) != kQuotes.npos && letters < 2;
  return is_string ? ReadStrings(json) : ReadWord(json);
}

// A list, or a tuple, which one value in brackets is only with a comma.
bool CallReader::ReadList(std::string_view close, int depth, std::string* json) {
  std::string elements;
  size_t count = 0;
  bool has_comma = false;
  while (!Take(close)) {
    if (count++ > 0) elements += ',';
    if (!ReadValue(depth + 1, &elements)) return false;
    has_comma = Take(",");
    if (!has_comma && !text_.starts_with(close)) return false;
  }
  const bool is_value = close == ")" && count == 1 && !has_comma;
  if (is_value) {
    json->append(elements);
  } else {
    json->append("[").append(elements).append("]");
  }
  return true;
}

bool CallReader::ReadDict(int depth, std::string* json) {
  Members members;
  while (!Take("}")) {
    std::string key;
    std::string value;
    if (!ReadValue(depth + 1, &key) || key.starts_with("[") || key.starts_with("{")) return false;
    // Numbers and words as they would be values.
    if (!key.starts_with("\"")) key = "\"" + key + "\"";
    if (!Take(":") || !ReadValue(depth + 1, &value) || !TakeComma("}")) return false;
    members.Set(std::move(key), std::move(value));
  }
  members.AppendTo(json);
  return true;
}

bool IsHexDigit(char c) { return IsDigit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

// Digits with single underscores between them, which are left out.
template <typename IsOne>
std::string TakeDigits(const IsOne& is_digit, std::string_view* text) {
  std::string digits;
  while (!text->empty()) {
    const bool is_joint =
        text->front() == '_' && !digits.empty() && text->size() > 1 && is_digit((*text)[1]);
    if (is_joint) text->remove_prefix(1);
    if (!is_digit(text->front())) break;
    digits += text->front();
    text->remove_prefix(1);
  }
  return digits;
}

// "0xFF", "0o17", "0b1" in decimal.
std::optional<std::string> TakePrefixed(std::string_view* text) {
  const char kind = text->size() > 1 && text->front() == '0' ? (*text)[1] : '\0';
  const int base = kind == 'x' || kind == 'X'   ? 16
                   : kind == 'o' || kind == 'O' ? 8
                   : kind == 'b' || kind == 'B' ? 2
                                                : 0;
  if (base == 0) return std::nullopt;
  std::string_view rest = text->substr(2);
  if (rest.starts_with('_')) rest.remove_prefix(1);
  const std::string digits = TakeDigits(IsHexDigit, &rest);
  uint64_t value = 0;
  const char* const end = digits.data() + digits.size();
  const auto read = std::from_chars(digits.data(), end, value, base);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  *text = rest;
  return std::to_string(value);
}

bool CallReader::ReadNumber(std::string* json) {
  if (text_.front() == '+' || text_.front() == '-') {
    if (text_.front() == '-') *json += '-';
    text_.remove_prefix(1);
  }
  if (const auto prefixed = TakePrefixed(&text_)) {
    *json += *prefixed;
  } else {
    const std::string whole = TakeDigits(IsDigit, &text_);
    const bool has_point = text_.starts_with(".");
    if (has_point) text_.remove_prefix(1);
    const std::string decimals = has_point ? TakeDigits(IsDigit, &text_) : "";
    if (whole.empty() && decimals.empty()) return false;
    std::string exponent;
    if (text_.starts_with("e") || text_.starts_with("E")) {
      text_.remove_prefix(1);
      exponent = "e";
      if (text_.starts_with("+") || text_.starts_with("-")) {
        exponent += text_.front();
        text_.remove_prefix(1);
      }
      const std::string digits = TakeDigits(IsDigit, &text_);
      if (digits.empty()) return false;
      exponent += digits;
    }
    const size_t nonzero = std::min(whole.find_first_not_of('0'), whole.size());
    // 007 is no number in Python, 00 and 007.5 are.
    const bool is_integer = !has_point && exponent.empty();
    if (is_integer && nonzero > 0 && nonzero < whole.size()) return false;
    std::string number = nonzero == whole.size() ? "0" : whole.substr(nonzero);
    if (has_point) number.append(".").append(decimals.empty() ? "0" : decimals);
    number.append(exponent);
    // A float that is too large is Python's infinity, which JSON has not.
    if (!is_integer && !Json::Parse(number).ok()) return false;
    json->append(number);
  }
  return text_.empty() || !(IsNameCharacter(text_.front()));
}

bool CallReader::ReadWord(std::string* json) {
  static constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"True", "true"}, {"False", "false"}, {"None", "null"},
      {"true", "true"}, {"false", "false"}, {"null", "null"}};
  const size_t size = static_cast<size_t>(
      std::find_if_not(text_.begin(), text_.end(), IsNameCharacter) - text_.begin());
  for (const auto& [word, meaning] : kWords) {
    if (text_.substr(0, size) != word) continue;
    text_.remove_prefix(size);
    json->append(meaning);
    return true;
  }
  return false;
}

bool CallReader::ReadStrings(std::string* json) {
  std::string value;
  bool is_joined = false;
  do {
    if (!ReadString(&value)) return false;
    DropBlanks(&text_);
    is_joined = string_end_ == StringEnd::kFirst && !text_.empty() &&
                kQuotes.find(text_.front()) != kQuotes.npos;
  } while (is_joined);
  *json += Json(std::move(value)).Dump();
  return true;
}

bool CallReader::ReadString(std::string* value) {
  bool is_raw = false;
  if (IsLetter(text_.front())) {
    is_raw = text_.front() == 'r' || text_.front() == 'R';
    if (!is_raw && text_.front() != 'u' && text_.front() != 'U') return false;
    text_.remove_prefix(1);
  }
  const std::string_view three = text_.substr(0, 3);
  const bool is_long = three == "'''" || three == "\"\"\"";
  const std::string_view mark = text_.substr(0, is_long ? 3 : 1);
  text_.remove_prefix(mark.size());
  std::string raw;
  for (;;) {
    ended_in_string_ = text_.empty();
    if (ended_in_string_) return false;
    if (text_.starts_with(mark) && (is_long || EndsString(text_.substr(1)))) break;
    const bool is_escape = text_.front() == '\\' && text_.size() > 1;
    const bool is_slash = is_escape && !is_raw && text_[1] == '/';
    raw.append(is_slash ? "/" : text_.substr(0, is_escape ? 2 : 1));
    text_.remove_prefix(is_escape ? 2 : 1);
  }
  text_.remove_prefix(mark.size());
  if (is_raw) {
    *value += raw;
    return true;
  }
  auto meant = chat::UnescapePython(raw);
  if (!meant.ok()) return false;
  *value += *meant;
  return true;
}

bool CallReader::EndsString(std::string_view behind) const {
  if (string_end_ == StringEnd::kFirst) return true;
  const size_t next = behind.find_first_not_of(kBlanks);
  return next != behind.npos && std::string_view(",)]}:").find(behind[next]) != behind.npos;
}

// Reads one call after the other.
class CallsReader {
 public:
  explicit CallsReader(std::string_view text) : text_(text) {}

  std::optional<CallText> Read() {
    ended_in_string_ = false;
    for (;;) {
      CallReader reader(text_, string_end_);
      if (auto call = reader.Read()) {
        text_ = reader.rest();
        return call;
      }
      ended_in_string_ = ended_in_string_ || reader.ended_in_string();
      if (string_end_ == StringEnd::kBehindValue) return std::nullopt;
      // For the rest of the text, as each failure may have read all there is.
      string_end_ = StringEnd::kBehindValue;
    }
  }
  std::string_view* rest() { return &text_; }
  // Of the call that could not be read.
  bool ended_in_string() const { return ended_in_string_; }

 private:
  std::string_view text_;
  StringEnd string_end_ = StringEnd::kFirst;
  bool ended_in_string_ = false;
};

bool TakeSign(char sign, std::string_view* text) {
  std::string_view rest = *text;
  DropBlanks(&rest);
  if (!rest.starts_with(sign)) return false;
  *text = rest.substr(1);
  return true;
}

// What a text begins with.
struct Beginning {
  std::vector<CallText> calls;
  std::string_view rest;
  bool ends_in_string = false;  // of one more call, which is in `rest`
};

Beginning ReadBeginning(std::string_view text) {
  Beginning beginning{.calls = {}, .rest = text};
  if (text.size() > kMaxTextBytes) return beginning;
  const bool is_list = TakeSign('[', &text);
  CallsReader reader(text);
  std::string_view* const rest = reader.rest();
  while (auto call = reader.Read()) {
    beginning.calls.push_back(*std::move(call));
    const size_t next = rest->find_first_not_of(" \t\r\n,;");
    rest->remove_prefix(std::min(next, rest->size()));
  }
  beginning.ends_in_string = reader.ended_in_string();
  if (beginning.calls.empty()) return beginning;
  if (is_list) TakeSign(']', rest);
  beginning.rest = *rest;
  return beginning;
}

}  // namespace

std::vector<CallText> TakePythonCalls(std::string_view* text) {
  Beginning beginning = ReadBeginning(*text);
  *text = beginning.rest;
  return std::move(beginning.calls);
}

std::optional<std::vector<CallText>> ParsePythonCalls(std::string_view text) {
  std::string_view rest = text;
  DropBlanks(&rest);
  const bool is_list = rest.starts_with('[');
  std::vector<CallText> calls = TakePythonCalls(&text);
  if (calls.empty() || text.find_first_not_of(kBlanks) != text.npos) return std::nullopt;
  // A list that nobody closed was cut off.
  rest = rest.substr(0, rest.find_last_not_of(kBlanks) + 1);
  if (is_list && !rest.ends_with(']')) return std::nullopt;
  return calls;
}

bool IsPythonKeyword(std::string_view name) {
  return !name.empty() && name.find_first_of(kKeywordEnds) == name.npos &&
         kBlanks.find(name.front()) == kBlanks.npos && kBlanks.find(name.back()) == kBlanks.npos;
}

bool EndsInPythonString(std::string_view text) { return ReadBeginning(text).ends_in_string; }

}  // namespace kvasir
