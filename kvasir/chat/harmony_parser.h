// HarmonyParser: tells thoughts, text and tool calls of gpt-oss apart, whose answer is a row of
// messages with a header each: "<|channel|>analysis<|message|>...<|end|><|start|>assistant
// <|channel|>commentary to=functions.f <|constrain|>json<|message|>{...}<|call|>".
// Deliberately apart from AnswerParser, whose families put marks into one text.
#ifndef KVASIR_CHAT_HARMONY_PARSER_H_
#define KVASIR_CHAT_HARMONY_PARSER_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/chat/answer_part.h"
#include "kvasir/chat/json_call.h"

namespace kvasir {

struct HarmonyOptions {
  bool reads_thoughts = true;      // false: they are text, between their marks
  bool starts_in_header = true;    // the prompt ends where one begins; false: within a text
  std::vector<std::string> tools;  // names; none: calls are text
  bool must_call = false;          // a mark that is cut off at the end is no text
};

// As AnswerParser. THREADS: one at a time.
class HarmonyParser {
 public:
  explicit HarmonyParser(HarmonyOptions options);

  AnswerParts Push(std::string_view text);
  AnswerParts Finish();
  bool is_in_thought() const { return place_ == Place::kBody && kind_ == Kind::kReasoning; }
  bool is_in_text() const { return place_ == Place::kBody && kind_ == Kind::kText; }

 private:
  using Kind = AnswerPart::Kind;
  enum class Place {
    kHeader,  // up to its mark
    kBody,
    kCallBegin,  // a call's body, of which nothing but blanks is known
    kArguments,
    kOther,    // a call's body that is no JSON
    kSkipped,  // nobody's
  };

  bool Advance(bool is_end);
  bool InHeader(bool is_end);
  bool InBody(bool is_end);
  bool AtCallBegin(bool is_end);
  bool InArguments(bool is_end);
  bool InOther(bool is_end);
  void BeginBody(std::string_view header);
  void EmitHeaderless(std::string_view header);
  void Emit(Kind kind, std::string_view text);
  // Where a body ends in what is held, behind `from`.
  struct BodyEnd {
    size_t at = std::string::npos;  // npos: nowhere
    size_t size = 0;                // of its mark, but of one that begins the next header
    size_t tail = 0;                // bytes at the end of what is held that may be its beginning

    bool is_there() const { return at != std::string::npos; }
    size_t end() const { return at + size; }
  };
  BodyEnd FindEnd(size_t from = 0) const;
  void Drop(size_t bytes) { held_.erase(0, bytes); }
  void EndMessage(size_t bytes);

  std::shared_ptr<const HarmonyOptions> options_;  // shared by copies
  Place place_;
  Kind kind_ = Kind::kText;  // of a body
  bool is_bare_ = false;     // a thought that is shown as text: its marks too
  std::string held_;
  std::string call_;       // the tool whose call this is
  bool has_text_ = false;  // given out
  bool has_thought_ = false;
  bool is_new_message_ = true;  // nothing of this body was
  bool is_first_ = true;        // header
  JsonValueScanner arguments_;
  AnswerParts parts_;
};

}  // namespace kvasir

#endif  // KVASIR_CHAT_HARMONY_PARSER_H_
