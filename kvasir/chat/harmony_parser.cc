#include "kvasir/chat/harmony_parser.h"

#include <algorithm>
#include <utility>

#include "kvasir/base/json.h"

namespace kvasir {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kStart = "<|start|>";
constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kAnalysis = "analysis";
constexpr std::string_view kRecipient = "to=";
constexpr std::string_view kFunctions = "functions.";
constexpr std::string_view kBodyEnds[] = {"<|end|>", "<|call|>", "<|return|>", kStart};
// What a header can begin with.
constexpr std::string_view kHeaderBegins[] = {kStart,          kChannel,   kMessage,
                                              "<|constrain|>", kRecipient, "assistant"};
// Longer ones are no headers: names of tools have 64 characters.
constexpr size_t kMostHeader = 512;
// Tools that take whole programs, under the names that clients give them.
constexpr std::string_view kInterpreters[] = {"python", "ipython", "code_interpreter"};

size_t FirstNonBlank(std::string_view text) {
  return std::min(text.find_first_not_of(kBlanks), text.size());
}

// The word behind `key`, up to a blank or a mark.
std::string_view WordBehind(std::string_view text, std::string_view key) {
  const size_t at = text.find(key);
  if (at == text.npos) return {};
  text.remove_prefix(at + key.size());
  return text.substr(0, text.find_first_of(" \t\r\n<"));
}

bool MayBeHeader(std::string_view text) {
  text.remove_prefix(FirstNonBlank(text));
  return std::any_of(
      std::begin(kHeaderBegins), std::end(kHeaderBegins),
      [&](std::string_view begin) { return text.starts_with(begin) || begin.starts_with(text); });
}

}  // namespace

HarmonyParser::HarmonyParser(HarmonyOptions options)
    : options_(std::make_shared<const HarmonyOptions>(std::move(options))),
      place_(options_->starts_in_header ? Place::kHeader : Place::kBody) {}

AnswerParts HarmonyParser::Push(std::string_view text) {
  held_ += text;
  while (Advance(false)) {
  }
  return std::exchange(parts_, {});
}

AnswerParts HarmonyParser::Finish() {
  while (Advance(true)) {
  }
  return std::exchange(parts_, {});
}

bool HarmonyParser::Advance(bool is_end) {
  switch (place_) {
    case Place::kHeader:
      return InHeader(is_end);
    case Place::kBody:
      return InBody(is_end);
    case Place::kCallBegin:
      return AtCallBegin(is_end);
    case Place::kArguments:
      return InArguments(is_end);
    case Place::kOther:
    case Place::kSkipped:
      return InOther(is_end);
  }
  return false;
}

void HarmonyParser::Emit(Kind kind, std::string_view text) {
  if (text.empty()) return;
  // Two messages of one kind are two paragraphs.
  if (std::exchange(is_new_message_, false) && last_kind_ == kind) parts_.push_back({kind, "\n\n"});
  last_kind_ = kind;
  parts_.push_back({kind, std::string(text)});
}

bool HarmonyParser::FindEnd(size_t* at, size_t* size, size_t* tail) const {
  *at = held_.npos;
  *tail = 0;
  for (const std::string_view end : kBodyEnds) {
    const size_t found = held_.find(end);
    if (found < *at) {
      *at = found;
      *size = end == kStart ? 0 : end.size();
    }
    for (size_t length = std::min(end.size() - 1, held_.size()); length > *tail; --length) {
      if (held_.ends_with(end.substr(0, length))) *tail = length;
    }
  }
  return *at != held_.npos;
}

void HarmonyParser::EndMessage(size_t bytes) {
  Drop(bytes);
  place_ = Place::kHeader;
}

bool HarmonyParser::InHeader(bool is_end) {
  const size_t at = held_.find(kMessage);
  if (at != held_.npos && at <= kMostHeader) {
    const std::string header = held_.substr(0, at);
    Drop(at + kMessage.size());
    BeginBody(header);
    return true;
  }
  if (held_.size() > kMostHeader || !MayBeHeader(held_)) {
    // A model that does not speak so.
    place_ = Place::kBody;
    kind_ = Kind::kText;
    is_bare_ = false;
    is_new_message_ = true;
    return true;
  }
  if (is_end) held_.clear();
  return false;
}

void HarmonyParser::BeginBody(std::string_view header) {
  is_new_message_ = true;
  is_bare_ = false;
  std::string_view recipient = WordBehind(header, kRecipient);
  const bool is_function = recipient.starts_with(kFunctions);
  if (is_function) recipient.remove_prefix(kFunctions.size());
  const std::vector<std::string>& tools = options_->tools;
  const bool is_known = std::find(tools.begin(), tools.end(), recipient) != tools.end();
  if (!recipient.empty() && recipient != "assistant" && !tools.empty() &&
      (is_function || is_known)) {
    call_ = recipient;
    arguments_ = {};
    place_ = Place::kCallBegin;
    return;
  }
  place_ = Place::kBody;
  // Who is called that is not there is nobody's business.
  const bool is_thought = WordBehind(header, kChannel) == kAnalysis || !recipient.empty();
  kind_ = is_thought && options_->reads_thoughts ? Kind::kReasoning : Kind::kText;
  is_bare_ = is_thought && !options_->reads_thoughts;
  if (is_bare_) {
    Emit(Kind::kText, std::string(kChannel).append(kAnalysis).append(kMessage));
  }
}

bool HarmonyParser::InBody(bool is_end) {
  size_t at = 0;
  size_t size = 0;
  size_t tail = 0;
  if (FindEnd(&at, &size, &tail)) {
    Emit(kind_, std::string_view(held_).substr(0, at));
    if (is_bare_) Emit(Kind::kText, kBodyEnds[0]);
    EndMessage(at + size);
    return true;
  }
  if (is_end && !options_->must_call) tail = 0;
  const size_t known = held_.size() - tail;
  Emit(kind_, std::string_view(held_).substr(0, known));
  Drop(known);
  if (is_end) held_.clear();
  return false;
}

bool HarmonyParser::AtCallBegin(bool is_end) {
  Drop(FirstNonBlank(held_));
  if (held_.empty() && !is_end) return false;
  if (!held_.starts_with("{")) {
    place_ = Place::kOther;
    return true;
  }
  parts_.push_back({Kind::kCall, call_});
  last_kind_ = Kind::kCall;
  place_ = Place::kArguments;
  return true;
}

bool HarmonyParser::InArguments(bool is_end) {
  const size_t size = arguments_.Push(held_);
  if (size > 0) parts_.push_back({Kind::kArguments, held_.substr(0, size)});
  Drop(size);
  if (!arguments_.is_done()) return false;
  place_ = Place::kSkipped;
  return !held_.empty() || is_end;
}

bool HarmonyParser::InOther(bool is_end) {
  size_t at = 0;
  size_t size = 0;
  size_t tail = 0;
  const bool has_end = FindEnd(&at, &size, &tail);
  if (!has_end && !is_end) {
    if (place_ == Place::kSkipped) Drop(held_.size() - tail);
    return false;
  }
  const std::string body = held_.substr(0, at);
  const Place place = place_;
  EndMessage(has_end ? at + size : held_.size());
  if (place == Place::kSkipped) return has_end;
  const bool is_program = std::find(std::begin(kInterpreters), std::end(kInterpreters), call_) !=
                          std::end(kInterpreters);
  if (body.empty() || is_program) {
    parts_.push_back({Kind::kCall, call_});
    last_kind_ = Kind::kCall;
    const Json arguments = body.empty() ? Json(Json::Object()) : Json(Json::Object{{"code", body}});
    parts_.push_back({Kind::kArguments, arguments.Dump()});
  } else if (!options_->must_call) {
    Emit(Kind::kText, body);
  }
  return has_end;
}

}  // namespace kvasir
