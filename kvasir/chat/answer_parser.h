// AnswerParser: tells thoughts, text and tool calls apart while an answer is being written.
// Deliberately never takes back what it gave out: text that may become a marker is held until it is
// known, everything else goes out at once.
#ifndef KVASIR_CHAT_ANSWER_PARSER_H_
#define KVASIR_CHAT_ANSWER_PARSER_H_

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/chat/answer_part.h"
#include "kvasir/chat/call_text.h"
#include "kvasir/chat/chat_dialect.h"
#include "kvasir/chat/harmony_parser.h"
#include "kvasir/chat/json_call.h"

namespace kvasir {

struct AnswerParserOptions {
  ChatDialect dialect;
  bool reads_thoughts = false;     // false: they are text like any other
  bool starts_in_thought = false;  // the prompt has opened one
  bool starts_in_text = false;     // kHarmony: it has opened a text
  Json tools;                      // as the request has them; null: calls are text
  bool must_call = false;  // calls are asked for: a marker that is cut off at the end is no text
};

// What any chunks of a text give, joined, does not depend on where they are cut. Of an answer that
// was cut off within a call, the call is what there was; one without a name yet is left out, and an
// opening with nothing behind it is text.
// THREADS: one at a time.
class AnswerParser {
 public:
  explicit AnswerParser(AnswerParserOptions options);

  AnswerParts Push(std::string_view text);
  // What was held back. Nothing may follow.
  AnswerParts Finish();
  bool is_in_thought() const {
    return harmony_ ? harmony_->is_in_thought() : place_ == Place::kThought;
  }
  // Whether what comes is text as far as is known: behind a marker that is not complete it is.
  bool is_in_text() const {
    if (harmony_) return harmony_->is_in_text();
    return place_ == Place::kBegin || place_ == Place::kText || place_ == Place::kPlain;
  }

 private:
  enum class Place {
    kBegin,  // nothing but blanks so far
    kThought,
    kText,
    kCallBegin,  // behind a call's opening, or after a call
    kJsonCall,
    kCallText,  // a call that is read when complete
    kPlain,     // nothing but text will come
  };

  // Reads on; false if more text is needed first.
  bool Advance(bool is_end);
  bool AtBegin(bool is_end);
  bool InThought(bool is_end);
  bool InText(bool is_end);
  bool AtCallBegin(bool is_end);
  bool AtPythonBegin(bool is_end);
  bool AtCallName(bool is_end);
  bool InJsonCall();
  bool InCallText(bool is_end);
  bool AtCallTextEnd();
  bool EndsInValue(const std::string& text) const;
  bool MayEndOpenValue(size_t at) const;
  bool TakeCallText(const std::string& text);     // false: it is no call
  void TakeCutCallText(const std::string& text);  // what there is of it
  void EmitCall(const CallText& call);
  // At the end: the begin of a call, which is shown as text unless calls are asked for.
  void EmitCutCall(std::string_view text);
  // What looked like a call until `text`, with what had been held for it.
  void EmitNoCall(std::string_view text);
  void BeginCallText();
  void GoBehindCall();

  void Emit(AnswerPart::Kind kind, std::string_view text);
  // Blanks that what is held begins with are looked at no more, however many come.
  void HoldBlanks();
  // A text or thought behind the blanks that were held.
  void EmitWithBlanks(AnswerPart::Kind kind, std::string_view text);
  // Gives out what is held but a tail that may become one of `markers`, and blanks at the end.
  void EmitAllBut(std::span<const std::string> markers, AnswerPart::Kind kind);
  void Drop(size_t bytes) { held_.erase(0, bytes); }
  // Calls are elements of a list of JSON.
  bool is_in_list() const;
  bool knows_tools() const { return !grammar_->names.empty(); }
  const std::vector<std::string>* JsonNames() const;

  // Shared by copies, as a request with many answers has a parser for each.
  struct Grammar {
    AnswerParserOptions options;
    std::vector<std::string> openings;  // of a call
    std::vector<std::string> names;     // of the tools
  };
  static std::shared_ptr<const Grammar> MakeGrammar(AnswerParserOptions options);
  std::shared_ptr<const Grammar> grammar_;
  std::optional<HarmonyParser> harmony_;  // reads it instead
  Place place_ = Place::kBegin;
  std::string held_;  // not given out yet
  // Blanks and the opening, which are shown if there is no call; of a text or thought the blanks
  // before what is held, which are shown if more of it comes.
  std::string before_call_;
  bool skips_blanks_ = false;  // until something else comes
  bool is_after_call_ = false;
  bool is_python_ = false;   // kCallText: Llama's
  size_t looked_bytes_ = 0;  // of what is held behind an opening, where what is looked for is not
  // kCallText: of a call that may go on behind it, as it seems to stand in a value.
  std::optional<size_t> first_closing_;
  size_t read_bytes_ = 0;        // behind the last closing: what is before is known
  size_t read_again_bytes_ = 0;  // of all such calls
  bool is_json_list_ = false;    // what stands between marks for calls in Python
  std::optional<JsonCallScanner> call_;
  std::optional<JsonValueScanner> arguments_;  // of a call whose name stands before them
  AnswerParts parts_;
};

}  // namespace kvasir

#endif  // KVASIR_CHAT_ANSWER_PARSER_H_
