#include "kvasir/chat/answer_parser.h"

#include <algorithm>
#include <utility>

#include "kvasir/chat/python_call.h"

namespace kvasir {
namespace {

using Kind = AnswerPart::Kind;

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kArgs = "[ARGS]";
constexpr std::string_view kCallId = "[CALL_ID]";
// A call that ends within a value is read again at the next closing. All that are in one answer
// may take as much work as reading so many bytes: what the longest text of calls has.
constexpr size_t kMostReadAgainBytes = size_t{4} << 20;
// Tools that take whole programs, under the names that clients give them.
constexpr std::string_view kInterpreters[] = {"python", "ipython", "code_interpreter"};

size_t FirstNonBlank(std::string_view text) {
  return std::min(text.find_first_not_of(kBlanks), text.size());
}

// The size of the longest tail of `text` that is a proper prefix of one of `markers`.
size_t TailThatMayBecome(std::string_view text, std::span<const std::string> markers) {
  size_t longest = 0;
  for (const std::string_view marker : markers) {
    size_t size = marker.empty() ? 0 : std::min(text.size(), marker.size() - 1);
    while (size > 0 && !text.ends_with(marker.substr(0, size))) --size;
    longest = std::max(longest, size);
  }
  return longest;
}

std::vector<std::string> NamesOf(const Json& tools) {
  std::vector<std::string> names;
  if (!tools.is_array()) return names;
  for (const Json& tool : tools.as_array()) {
    const Json* function = tool.Find("function");
    const Json* name = function == nullptr ? nullptr : function->Find("name");
    if (name != nullptr && name->is_string()) names.push_back(name->as_string());
  }
  return names;
}

// What a call of this kind ends with.
std::string_view CallClosing(ToolSyntax syntax) {
  switch (syntax) {
    case ToolSyntax::kHermes:
    case ToolSyntax::kQwenXml:
    case ToolSyntax::kGlm:
      return "</tool_call>";
    case ToolSyntax::kGemma:
      return "<tool_call|>";
    case ToolSyntax::kLfm2:
      return "<|tool_call_end|>";
    case ToolSyntax::kOlmo3:
      return "</function_calls>";
    case ToolSyntax::kPhi4Mini:
      return "<|/tool_call|>";
    case ToolSyntax::kLlama:
    case ToolSyntax::kMistral:
    case ToolSyntax::kMistralArgs:
    case ToolSyntax::kGranite:
    case ToolSyntax::kHarmony:
      return "";
  }
  return "";
}

// Calls between marks, all of them in one text.
bool IsPython(ToolSyntax syntax) {
  return syntax == ToolSyntax::kLfm2 || syntax == ToolSyntax::kOlmo3;
}

// "f.call(k="v", n=3)"; other Python is the argument of a tool that runs it.
std::optional<CallText> LlamaCall(const std::string& text, const std::vector<std::string>& tools) {
  constexpr std::string_view kMethod = ".call";
  auto calls = ParsePythonCalls(text);
  const bool is_call = calls && calls->size() == 1 && calls->front().name.ends_with(kMethod) &&
                       calls->front().name.size() > kMethod.size();
  if (is_call) {
    std::string& name = calls->front().name;
    name.resize(name.size() - kMethod.size());
    return std::move(calls->front());
  }
  for (const std::string_view name : kInterpreters) {
    if (std::find(tools.begin(), tools.end(), name) == tools.end()) continue;
    return CallText{std::string(name), Json(Json::Object{{"code", text}}).Dump()};
  }
  return std::nullopt;
}

}  // namespace

std::shared_ptr<const AnswerParser::Grammar> AnswerParser::MakeGrammar(
    AnswerParserOptions options) {
  auto grammar = std::make_shared<Grammar>();
  grammar->openings = CallOpenings(options.dialect.tools);
  grammar->names = NamesOf(options.tools);
  grammar->options = std::move(options);
  return grammar;
}

AnswerParser::AnswerParser(AnswerParserOptions options)
    : grammar_(MakeGrammar(std::move(options))) {
  if (grammar_->options.dialect.is_harmony()) {
    harmony_.emplace(HarmonyOptions{.reads_thoughts = grammar_->options.reads_thoughts,
                                    .starts_in_header = !grammar_->options.starts_in_text,
                                    .tools = grammar_->names,
                                    .must_call = grammar_->options.must_call});
    return;
  }
  const bool reads_thoughts =
      grammar_->options.reads_thoughts && grammar_->options.dialect.thinks();
  if (reads_thoughts && grammar_->options.starts_in_thought) {
    place_ = Place::kThought;
    skips_blanks_ = true;
  } else if (!reads_thoughts && !knows_tools()) {
    place_ = Place::kPlain;
  }
}

AnswerParts AnswerParser::Push(std::string_view text) {
  if (harmony_) return harmony_->Push(text);
  held_ += text;
  while (Advance(false)) {
  }
  return std::exchange(parts_, {});
}

AnswerParts AnswerParser::Finish() {
  if (harmony_) return harmony_->Finish();
  while (Advance(true)) {
  }
  return std::exchange(parts_, {});
}

bool AnswerParser::Advance(bool is_end) {
  if (skips_blanks_) {
    Drop(FirstNonBlank(held_));
    skips_blanks_ = held_.empty();
  }
  switch (place_) {
    case Place::kBegin:
      return AtBegin(is_end);
    case Place::kThought:
      return InThought(is_end);
    case Place::kText:
      return InText(is_end);
    case Place::kCallBegin:
      return AtCallBegin(is_end);
    case Place::kJsonCall:
      return InJsonCall();
    case Place::kCallText:
      return InCallText(is_end);
    case Place::kPlain:
      EmitNoCall(std::exchange(held_, {}));
      return false;
  }
  return false;
}

void AnswerParser::Emit(Kind kind, std::string_view text) {
  if (!text.empty()) parts_.push_back({kind, std::string(text)});
}

void AnswerParser::HoldBlanks() {
  const size_t size = FirstNonBlank(held_);
  before_call_.append(held_, 0, size);
  Drop(size);
}

void AnswerParser::EmitWithBlanks(Kind kind, std::string_view text) {
  if (!text.empty()) Emit(kind, std::exchange(before_call_, {}).append(text));
}

void AnswerParser::EmitAllBut(std::span<const std::string> markers, Kind kind) {
  size_t size = held_.size() - TailThatMayBecome(held_, markers);
  size = std::string_view(held_).substr(0, size).find_last_not_of(kBlanks) + 1;
  EmitWithBlanks(kind, std::string_view(held_).substr(0, size));
  Drop(size);
}

void AnswerParser::EmitNoCall(std::string_view text) {
  Emit(Kind::kText, std::exchange(before_call_, {}).append(text));
}

void AnswerParser::EmitCutCall(std::string_view text) {
  if (!grammar_->options.must_call) EmitNoCall(text);
}

void AnswerParser::BeginCallText() {
  place_ = Place::kCallText;
  looked_bytes_ = 0;
  first_closing_.reset();
}

void AnswerParser::GoBehindCall() {
  place_ = Place::kCallBegin;
  is_after_call_ = true;
  before_call_.clear();
}

bool AnswerParser::AtBegin(bool is_end) {
  const std::string& open = grammar_->options.dialect.think_open;
  HoldBlanks();
  if (grammar_->options.reads_thoughts && !open.empty()) {
    if (held_.starts_with(open)) {
      before_call_.clear();
      Drop(open.size());
      place_ = Place::kThought;
      skips_blanks_ = true;
      return true;
    }
    if (!is_end && open.starts_with(held_)) return false;
  }
  // A Llama's call is the whole answer: it is known by its first character.
  if (knows_tools() && grammar_->options.dialect.tools == ToolSyntax::kLlama) {
    if (held_.empty() && !is_end) return false;
    if (held_.starts_with("{")) {
      place_ = Place::kCallBegin;
      return true;
    }
  }
  place_ = knows_tools() ? Place::kText : Place::kPlain;
  return true;
}

bool AnswerParser::InThought(bool is_end) {
  const std::string& close = grammar_->options.dialect.think_close;
  HoldBlanks();
  const size_t at = held_.find(close);
  if (at == held_.npos) {
    EmitAllBut(std::span(&close, is_end ? 0 : 1), Kind::kReasoning);
    if (is_end) held_.clear();
    return false;
  }
  const size_t size = std::string_view(held_).substr(0, at).find_last_not_of(kBlanks) + 1;
  EmitWithBlanks(Kind::kReasoning, std::string_view(held_).substr(0, size));
  before_call_.clear();
  Drop(at + close.size());
  skips_blanks_ = true;
  // There is one thought per answer, at its beginning.
  place_ = Place::kText;
  if (!knows_tools()) place_ = Place::kPlain;
  if (knows_tools() && grammar_->options.dialect.tools == ToolSyntax::kLlama) GoBehindCall();
  return true;
}

bool AnswerParser::InText(bool is_end) {
  HoldBlanks();
  size_t at = held_.npos;
  std::string_view opening;
  for (const std::string& one : grammar_->openings) {
    const size_t found = held_.find(one);
    if (found < at) opening = one;
    at = std::min(at, found);
  }
  if (at == held_.npos) {
    // Blanks before a call are not shown; at the end there is none.
    if (is_end) {
      const size_t cut =
          grammar_->options.must_call ? TailThatMayBecome(held_, grammar_->openings) : 0;
      std::string_view text = std::string_view(held_).substr(0, held_.size() - cut);
      if (cut > 0) text = text.substr(0, text.find_last_not_of(kBlanks) + 1);
      if (cut == 0 || !text.empty()) EmitNoCall(text);
      held_.clear();
    } else {
      EmitAllBut(grammar_->openings, Kind::kText);
    }
    return false;
  }
  const size_t size = std::string_view(held_).substr(0, at).find_last_not_of(kBlanks) + 1;
  EmitWithBlanks(Kind::kText, std::string_view(held_).substr(0, size));
  // Llama's tag is never shown.
  is_python_ = grammar_->options.dialect.tools == ToolSyntax::kLlama;
  before_call_.append(held_, size, at - size).append(is_python_ ? "" : opening);
  looked_bytes_ = 0;
  Drop(at + opening.size());
  place_ = Place::kCallBegin;
  is_after_call_ = false;
  return true;
}

bool AnswerParser::is_in_list() const {
  const ToolSyntax syntax = grammar_->options.dialect.tools;
  return syntax == ToolSyntax::kMistral || syntax == ToolSyntax::kGranite ||
         syntax == ToolSyntax::kPhi4Mini || is_json_list_;
}

// Finds out what kind of call stands here, or that the calls are over.
bool AnswerParser::AtCallBegin(bool is_end) {
  const ToolSyntax syntax = grammar_->options.dialect.tools;
  if (IsPython(syntax) && !is_after_call_) return AtPythonBegin(is_end);
  const bool is_list = is_in_list();
  const std::string_view between = is_list ? " \t\r\n[,]" : is_after_call_ ? " \t\r\n;" : kBlanks;
  const size_t size = std::min(held_.find_first_not_of(between), held_.size());
  before_call_.append(held_, 0, size);
  Drop(size);
  if (held_.empty()) {
    // Nothing of a call has come yet.
    if (is_end && !is_after_call_) EmitCutCall("");
    return false;
  }
  const bool is_text =
      syntax == ToolSyntax::kQwenXml || syntax == ToolSyntax::kGemma || syntax == ToolSyntax::kGlm;
  const bool is_json = held_.starts_with("{") && !is_text;
  if (is_after_call_ && !(is_json && (is_list || syntax == ToolSyntax::kLlama))) {
    const std::string_view closing = CallClosing(syntax);
    if (!closing.empty() && held_.starts_with(closing)) {
      Drop(closing.size());
      before_call_.clear();
      is_json_list_ = false;
      return true;
    }
    if (!closing.empty() && closing.starts_with(held_)) {
      if (is_end) held_.clear();
      return false;
    }
    place_ = Place::kText;
    // Blanks between a call and a text are the text's.
    before_call_.erase(0, before_call_.find_last_not_of(kBlanks) + 1);
    return true;
  }
  if (syntax == ToolSyntax::kMistralArgs) return AtCallName(is_end);
  if (is_text || (is_python_ && !is_json)) {
    BeginCallText();
    return true;
  }
  call_.emplace(JsonNames());
  place_ = Place::kJsonCall;
  return true;
}

// Calls in Python; or the list of JSON that prompts may ask for, and templates write, instead.
bool AnswerParser::AtPythonBegin(bool is_end) {
  const size_t first = held_.find_first_not_of(" \t\r\n[", looked_bytes_);
  looked_bytes_ = std::min(first, held_.size());
  if (first == held_.npos) {
    if (is_end) EmitCutCall(std::exchange(held_, {}));
    return false;
  }
  is_json_list_ = held_[first] == '{';
  if (!is_json_list_) {
    BeginCallText();
    return true;
  }
  before_call_.append(held_, 0, first);
  Drop(first);
  call_.emplace(JsonNames());
  place_ = Place::kJsonCall;
  return true;
}

// "name[CALL_ID]id[ARGS]{...}"
bool AnswerParser::AtCallName(bool is_end) {
  const size_t at = held_.find(kArgs, looked_bytes_);
  if (at == held_.npos) {
    looked_bytes_ = held_.size() - std::min(held_.size(), kArgs.size());
    if (is_end) EmitCutCall(std::exchange(held_, {}));
    return false;
  }
  const std::string_view head = std::string_view(held_).substr(0, at);
  std::string_view name = head.substr(0, head.find(kCallId));
  name = name.substr(0, name.find_last_not_of(kBlanks) + 1);
  if (name.empty()) {
    EmitNoCall(std::string_view(held_).substr(0, at + kArgs.size()));
    Drop(at + kArgs.size());
    place_ = Place::kText;
    return true;
  }
  Emit(Kind::kCall, name);
  Drop(at + kArgs.size());
  arguments_.emplace();
  place_ = Place::kJsonCall;
  skips_blanks_ = true;
  return true;
}

const std::vector<std::string>* AnswerParser::JsonNames() const {
  // Without a marker, an object is a call only if it names a tool.
  return grammar_->options.dialect.tools == ToolSyntax::kLlama ? &grammar_->names : nullptr;
}

bool AnswerParser::InJsonCall() {
  if (held_.empty()) return false;
  if (arguments_) {
    const size_t size = arguments_->Push(held_);
    Emit(Kind::kArguments, std::string_view(held_).substr(0, size));
    Drop(size);
    if (!arguments_->is_done()) return false;
    arguments_.reset();
  } else {
    Drop(call_->Push(held_, &parts_));
    if (call_->state() == JsonCallScanner::State::kReading) return false;
    if (call_->state() == JsonCallScanner::State::kNoCall) {
      EmitNoCall(call_->raw());
      call_.reset();
      place_ = Place::kText;
      return true;
    }
    call_.reset();
  }
  GoBehindCall();
  return true;
}

bool AnswerParser::InCallText(bool is_end) {
  const std::string_view closing = CallClosing(grammar_->options.dialect.tools);
  const size_t at = closing.empty() ? held_.npos : held_.find(closing, looked_bytes_);
  if (at == held_.npos) {
    looked_bytes_ = std::max(looked_bytes_, held_.size() - std::min(held_.size(), closing.size()));
    return is_end && AtCallTextEnd();
  }
  looked_bytes_ = at + closing.size();
  const bool stays_open = first_closing_ && !MayEndOpenValue(at);
  read_bytes_ = looked_bytes_;
  if (stays_open) return true;
  if (first_closing_) read_again_bytes_ += at;
  const bool reads_again = read_again_bytes_ <= kMostReadAgainBytes;
  const std::string text = held_.substr(0, at);
  if ((!first_closing_ || reads_again) && TakeCallText(text)) {
    GoBehindCall();
    Drop(looked_bytes_);
    return true;
  }
  const bool goes_on = reads_again && EndsInValue(text);
  if (!first_closing_) first_closing_ = at;
  if (goes_on) return true;
  read_again_bytes_ += at - *first_closing_;
  const std::string no_call = held_.substr(0, *first_closing_ + closing.size());
  Drop(no_call.size());
  EmitNoCall(no_call);
  place_ = Place::kText;
  return true;
}

// Whether a call, which the closing behind `text` does not make one, may go on behind it.
bool AnswerParser::EndsInValue(const std::string& text) const {
  const ToolSyntax syntax = grammar_->options.dialect.tools;
  if (IsPython(syntax)) return EndsInPythonString(text);
  return syntax == ToolSyntax::kGlm && ParseGlmCall(text, grammar_->options.tools).ends_in_value;
}

// Whether the value that was open at the last closing may have ended before the one at `at`.
bool AnswerParser::MayEndOpenValue(size_t at) const {
  const auto since = std::string_view(held_).substr(read_bytes_, at - read_bytes_);
  return grammar_->options.dialect.tools == ToolSyntax::kGlm
             ? since.find(kGlmValueClose) != since.npos
             : since.find_first_of("'\"") != since.npos;
}

bool AnswerParser::AtCallTextEnd() {
  // Of a name alone nobody knows whether it is whole.
  const bool is_name = grammar_->options.dialect.tools == ToolSyntax::kGlm &&
                       held_.find(kGlmValueClose) == held_.npos;
  if (!is_name && TakeCallText(held_)) {
    held_.clear();
    return false;
  }
  // Behind the first closing of a call that never became one stands something else, unless calls
  // are asked for: then it is the call that was cut off.
  const bool has_more = first_closing_.has_value() && !grammar_->options.must_call;
  const std::string_view closing = CallClosing(grammar_->options.dialect.tools);
  const std::string text =
      held_.substr(0, has_more ? *first_closing_ + closing.size() : held_.npos);
  Drop(text.size());
  read_again_bytes_ += held_.size();
  TakeCutCallText(text);
  if (has_more) place_ = Place::kText;
  return has_more;
}

bool AnswerParser::TakeCallText(const std::string& text) {
  const ToolSyntax syntax = grammar_->options.dialect.tools;
  if (IsPython(syntax)) {
    const auto calls = ParsePythonCalls(text);
    if (!calls) return false;
    for (const CallText& call : *calls) EmitCall(call);
    return true;
  }
  std::optional<CallText> call;
  if (syntax == ToolSyntax::kQwenXml) call = ParseQwenXmlCall(text, grammar_->options.tools);
  if (syntax == ToolSyntax::kGlm) call = ParseGlmCall(text, grammar_->options.tools).call;
  if (syntax == ToolSyntax::kGemma) call = ParseGemmaCall(text);
  if (is_python_) call = LlamaCall(text, grammar_->names);
  if (call) EmitCall(*call);
  return call.has_value();
}

void AnswerParser::TakeCutCallText(const std::string& text) {
  std::string_view rest = text;
  if (IsPython(grammar_->options.dialect.tools)) {
    for (const CallText& call : TakePythonCalls(&rest)) {
      EmitCall(call);
      before_call_.clear();
    }
  }
  EmitCutCall(rest);
}

void AnswerParser::EmitCall(const CallText& call) {
  Emit(Kind::kCall, call.name);
  Emit(Kind::kArguments, call.arguments);
}

}  // namespace kvasir
