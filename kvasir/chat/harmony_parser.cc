#include "kvasir/chat/harmony_parser.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "kvasir/base/json.h"

namespace kvasir {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kStart = "<|start|>";
constexpr std::string_view kChannel = "<|channel|>";
constexpr std::string_view kMessage = "<|message|>";
constexpr std::string_view kAssistant = "assistant";
constexpr std::string_view kRecipient = "to=";
constexpr std::string_view kFunctions = "functions.";
constexpr std::string_view kBodyEnds[] = {"<|end|>", "<|call|>", "<|return|>", kStart};
// What a header can begin with; one that the prompt began has said already whose it is.
constexpr std::string_view kHeaderBegins[] = {kStart, kChannel, kMessage, "<|constrain|>",
                                              kRecipient};

enum class Channel { kNone, kAnalysis, kCommentary, kFinal };
constexpr std::pair<std::string_view, Channel> kChannels[] = {{"analysis", Channel::kAnalysis},
                                                              {"commentary", Channel::kCommentary},
                                                              {"final", Channel::kFinal}};
// Longer ones are no headers: names of tools have 64 characters.
constexpr size_t kMostHeader = 512;
// Tools that take whole programs, under the names that clients give them.
constexpr std::string_view kInterpreters[] = {"python", "ipython", "code_interpreter"};

bool IsInterpreter(std::string_view tool) {
  return std::find(std::begin(kInterpreters), std::end(kInterpreters), tool) !=
         std::end(kInterpreters);
}

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

bool MayBeHeader(std::string_view text, bool is_first) {
  text.remove_prefix(FirstNonBlank(text));
  const auto may_begin = [&](std::string_view begin) {
    return text.starts_with(begin) || begin.starts_with(text);
  };
  return std::any_of(std::begin(kHeaderBegins), std::end(kHeaderBegins), may_begin) ||
         (!is_first && may_begin(kAssistant));
}

// The last one that a header names: models repeat them.
Channel ChannelOf(std::string_view header) {
  const size_t at = header.rfind(kChannel);
  if (at == header.npos) return Channel::kNone;
  std::string_view name = header.substr(at + kChannel.size());
  name.remove_prefix(FirstNonBlank(name));
  for (const auto& [known, channel] : kChannels) {
    if (name.starts_with(known)) return channel;
  }
  return Channel::kNone;
}

// Whose message it is, where a header says so.
struct Role {
  bool is_foreign = false;
  std::string_view rest;
};
Role RoleOf(std::string_view header) {
  header.remove_prefix(FirstNonBlank(header));
  const bool is_named = header.starts_with(kStart);
  if (is_named) header.remove_prefix(kStart.size());
  if (header.starts_with(kAssistant)) {
    header.remove_prefix(kAssistant.size());
    return {false, header};
  }
  const bool is_own = header.empty() || header.starts_with("<|") || header.starts_with(" ");
  return {is_named && !is_own, header};
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
  // Two messages of one kind are two paragraphs, wherever others stand between them.
  bool& has_some = kind == Kind::kText ? has_text_ : has_thought_;
  if (std::exchange(is_new_message_, false) && has_some) parts_.push_back({kind, "\n\n"});
  has_some = true;
  parts_.push_back({kind, std::string(text)});
}

HarmonyParser::BodyEnd HarmonyParser::FindEnd(size_t from) const {
  BodyEnd first;
  for (const std::string_view mark : kBodyEnds) {
    const size_t found = held_.find(mark, from);
    if (found < first.at) {
      first.at = found;
      first.size = mark == kStart ? 0 : mark.size();
    }
    for (size_t size = std::min(mark.size() - 1, held_.size()); size > first.tail; --size) {
      if (held_.ends_with(mark.substr(0, size))) first.tail = size;
    }
  }
  return first;
}

void HarmonyParser::EndMessage(size_t bytes) {
  Drop(bytes);
  place_ = Place::kHeader;
}

bool HarmonyParser::InHeader(bool is_end) {
  size_t at = held_.find(kMessage);
  // The mark that begins this header is none of its ends.
  const size_t begin = FirstNonBlank(held_);
  const size_t own = held_.compare(begin, kStart.size(), kStart) == 0 ? begin + kStart.size() : 0;
  const BodyEnd end = FindEnd(own);
  const bool is_cut = end.at < at;
  if (is_cut) at = end.at;
  if (at != held_.npos && at <= kMostHeader && MayBeHeader(held_, is_first_)) {
    const std::string header = held_.substr(0, at);
    Drop(is_cut ? end.end() : at + kMessage.size());
    is_first_ = false;
    if (is_cut) {
      EmitHeaderless(header);
    } else {
      BeginBody(header);
    }
    return true;
  }
  if (held_.size() > kMostHeader + kMessage.size() || !MayBeHeader(held_, is_first_)) {
    // A model that does not speak so.
    is_first_ = false;
    place_ = Place::kBody;
    kind_ = Kind::kText;
    is_bare_ = false;
    is_new_message_ = true;
    return true;
  }
  if (is_end) EmitHeaderless(std::exchange(held_, {}));
  return false;
}

// A message that ended before its header did: what is no part of a header was meant to be said.
void HarmonyParser::EmitHeaderless(std::string_view header) {
  is_new_message_ = true;
  std::string_view said = RoleOf(header).rest;
  if (const size_t mark = said.rfind(kChannel); mark != said.npos) {
    said.remove_prefix(mark + kChannel.size());
  }
  if (said.find("<|") != said.npos || said.find(kRecipient) != said.npos) return;
  const Channel channel = ChannelOf(header);
  for (const auto& [name, is] : kChannels) {
    if (is == channel && said.starts_with(name)) said.remove_prefix(name.size());
    // Cut off within its name.
    if (name.starts_with(said)) return;
  }
  said.remove_prefix(FirstNonBlank(said));
  const bool is_marked = header.find(kChannel) != header.npos;
  const bool is_thought = is_marked && channel != Channel::kFinal;
  Emit(is_thought && options_->reads_thoughts ? Kind::kReasoning : Kind::kText, said);
}

void HarmonyParser::BeginBody(std::string_view header) {
  is_new_message_ = true;
  is_bare_ = false;
  const Role role = RoleOf(header);
  if (role.is_foreign) {
    place_ = Place::kSkipped;  // what it made up for others to have said
    return;
  }
  std::string_view recipient = WordBehind(header, kRecipient);
  const bool is_function = recipient.starts_with(kFunctions);
  if (is_function) recipient.remove_prefix(kFunctions.size());
  const std::vector<std::string>& tools = options_->tools;
  const bool is_known = std::find(tools.begin(), tools.end(), recipient) != tools.end();
  const bool is_call = !recipient.empty() && recipient != kAssistant;
  if (is_call && !tools.empty() && (is_function || is_known)) {
    call_ = recipient;
    arguments_ = {};
    place_ = Place::kCallBegin;
    return;
  }
  place_ = Place::kBody;
  // Who is called that is not there is nobody's business.
  const bool is_thought = ChannelOf(header) == Channel::kAnalysis || is_call;
  kind_ = is_thought && options_->reads_thoughts ? Kind::kReasoning : Kind::kText;
  is_bare_ = is_thought && !options_->reads_thoughts;
  if (is_bare_) {
    Emit(Kind::kText, std::string(kChannel).append("analysis").append(kMessage));
  }
}

bool HarmonyParser::InBody(bool is_end) {
  const BodyEnd end = FindEnd();
  if (end.is_there()) {
    Emit(kind_, std::string_view(held_).substr(0, end.at));
    if (is_bare_) Emit(Kind::kText, kBodyEnds[0]);
    EndMessage(end.end());
    return true;
  }
  const size_t known = held_.size() - (is_end && !options_->must_call ? 0 : end.tail);
  Emit(kind_, std::string_view(held_).substr(0, known));
  Drop(known);
  if (is_end) held_.clear();
  return false;
}

bool HarmonyParser::AtCallBegin(bool is_end) {
  Drop(FirstNonBlank(held_));
  if (held_.empty() && !is_end) return false;
  // A program may begin as an object does.
  if (!held_.starts_with("{") || IsInterpreter(call_)) {
    place_ = Place::kOther;
    return true;
  }
  parts_.push_back({Kind::kCall, call_});
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
  const BodyEnd end = FindEnd();
  if (!end.is_there() && !is_end) {
    if (place_ == Place::kSkipped) Drop(held_.size() - end.tail);
    return false;
  }
  const std::string body = held_.substr(0, end.at);
  const bool is_skipped = place_ == Place::kSkipped;
  EndMessage(end.is_there() ? end.end() : held_.size());
  if (is_skipped) return end.is_there();
  if (body.empty() || IsInterpreter(call_)) {
    parts_.push_back({Kind::kCall, call_});
    const auto object = Json::Parse(body);
    const bool is_object = object.ok() && object->is_object();
    const Json program = Json::Object{{"code", body}};
    parts_.push_back({Kind::kArguments, body.empty() ? "{}" : is_object ? body : program.Dump()});
  } else if (!options_->must_call) {
    Emit(Kind::kText, body);
  }
  return end.is_there();
}

}  // namespace kvasir
