// Tool calls that are JSON objects, {"name": "f", "arguments": {...}}, read while they are written.
// Deliberately no validation beyond what finds the pieces: what a model writes reaches the client
// as it stands.
#ifndef KVASIR_CHAT_JSON_CALL_H_
#define KVASIR_CHAT_JSON_CALL_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/chat/answer_part.h"

namespace kvasir {

// Finds the end of one JSON value in text that comes in pieces.
class JsonValueScanner {
 public:
  // How many bytes of `text` belong to the value, blanks before it included. Fewer than all: it is
  // done, and so it may be when all do.
  size_t Push(std::string_view text);
  bool is_done() const { return is_done_; }

 private:
  enum class Kind { kNone, kString, kNested, kOther };
  Kind kind_ = Kind::kNone;
  int depth_ = 0;
  bool in_string_ = false;
  bool is_escaped_ = false;
  bool is_done_ = false;
};

class JsonCallScanner {
 public:
  enum class State { kReading, kDone, kNoCall };

  // `names`: only these are calls; null: all names. It must outlive the scanner.
  explicit JsonCallScanner(const std::vector<std::string>* names) : names_(names) {}

  // Reads up to the end of the call, appends what has become known of it, and returns how many
  // bytes it read. The arguments are given out as they come, if the name came before them.
  size_t Push(std::string_view text, AnswerParts* parts);
  State state() const { return state_; }
  // For kNoCall: everything that was read. Nothing was appended to parts then.
  const std::string& raw() const { return raw_; }

 private:
  enum class Place { kBegin, kMember, kKey, kColon, kValue };

  void Step(char c);
  size_t ReadValue(std::string_view text, AnswerParts* parts);
  void EndValue(AnswerParts* parts);
  bool TakeName();
  void Begin(AnswerParts* parts);
  void End(AnswerParts* parts);

  const std::vector<std::string>* names_;
  State state_ = State::kReading;
  Place place_ = Place::kBegin;
  JsonValueScanner scanner_;  // of the key or value being read
  std::string value_;         // of it so far, unless it is given out at once
  std::string key_;
  std::string raw_;
  std::string name_;
  std::string arguments_;  // that came before the name
  bool is_begun_ = false;  // the name is known and was given out
  bool is_streaming_ = false;
  bool has_arguments_ = false;
};

}  // namespace kvasir

#endif  // KVASIR_CHAT_JSON_CALL_H_
