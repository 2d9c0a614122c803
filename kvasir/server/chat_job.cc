#include "kvasir/server/chat_job.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "kvasir/base/text_hash.h"
#include "kvasir/engine/grammar_constraint.h"
#include "kvasir/server/dialect_messages.h"

namespace kvasir {
namespace {

using Choice = ToolRequest::Choice;

constexpr std::string_view kBlanks = " \t\r\n";

std::string_view WithoutTail(std::string_view text) {
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

// Where the prompt leaves the model: within a thought, behind one, or free to have one.
enum class ThoughtState { kNone, kOpen, kPossible };
ThoughtState ThoughtAt(const ChatDialect& dialect, std::string_view prompt) {
  if (!dialect.thinks()) return ThoughtState::kNone;
  prompt = WithoutTail(prompt);
  if (prompt.ends_with(dialect.think_close)) return ThoughtState::kNone;
  const bool is_open = prompt.ends_with(WithoutTail(dialect.think_open));
  return is_open ? ThoughtState::kOpen : ThoughtState::kPossible;
}

std::optional<FreeText> ThoughtText(const ServerContext& context, ThoughtState state) {
  const ChatDialect& dialect = context.dialect;
  if (state == ThoughtState::kNone) return std::nullopt;
  FreeText text{.until = dialect.think_close, .opener = {}, .may_end = false};
  if (state == ThoughtState::kOpen) return text;
  const std::string_view open = dialect.think_open;
  const std::string_view marker = open.starts_with("<|channel>") ? "<|channel>" : open;
  text.opener = context.bundle->tokenizer()->TokenToId(marker);
  // A thought that no single token opens cannot be told from the text; the answer goes without.
  if (!text.opener) return std::nullopt;
  return text;
}

// What the answer's text is, in one grammar.
struct Plan {
  bool has_calls = false;
  CallBegin begin = CallBegin::kWithOpening;
  bool has_text = false;  // OutputRule
  bool skips_blanks = false;
  bool is_harmony = false;  // all messages of the answer (HarmonyAnswerExpr)
  std::vector<FreeText> before;
};

// What a prompt of harmony ends with: the next thing is a message's header.
constexpr std::string_view kHarmonyTurn = "<|start|>assistant";
constexpr std::string_view kAssistant = "assistant";

// `is_in_text`: the final message has begun.
Plan HarmonyPlanOf(const ChatRequest& request, bool is_in_text) {
  Plan plan;
  plan.has_text = !request.rule.is_free() && request.tools.choice != Choice::kRequired;
  plan.has_calls = request.tools.is_on();
  // What goes on with a text of the assistant's is that text.
  if (is_in_text) plan.has_calls = false;
  plan.is_harmony = !is_in_text;
  return plan;
}

Plan PlanOf(const ServerContext& context, const ChatRequest& request, ThoughtState thought) {
  const ToolSyntax syntax = context.dialect.tools;
  Plan plan;
  plan.has_text = !request.rule.is_free() && request.tools.choice != Choice::kRequired;
  plan.has_calls = request.tools.is_on();
  // Words, then calls: only what follows a call's opening is held to anything.
  const bool is_lazy = request.tools.choice == Choice::kAuto && !plan.has_text;
  if (is_lazy) {
    plan.begin = CallBegin::kBehindOpening;
    plan.has_calls = HasCallGrammar(syntax) && !CallOpening(syntax).empty();
  }
  if (!plan.has_calls && !plan.has_text) return plan;
  if (auto text = ThoughtText(context, thought)) {
    text->may_end = is_lazy;
    plan.before.push_back(*std::move(text));
    plan.skips_blanks = !is_lazy;
  }
  if (is_lazy) {
    plan.before.push_back(
        {.until = std::string(CallOpening(syntax)), .opener = {}, .may_end = true});
  }
  return plan;
}

Result<std::shared_ptr<const Grammar>> GrammarOf(const ServerContext& context,
                                                 const ChatRequest& request, const Plan& plan) {
  OutputLanguage language;
  std::vector<GrammarSyntax::Expr> texts;
  if (plan.has_text) {
    KVASIR_TRY(language, LanguageOf(request.rule));
    texts.push_back(language.text);
  }
  GrammarSyntax& rules = language.syntax;
  if (plan.is_harmony) {
    HarmonyAnswer answer = {.has_final = request.tools.choice != Choice::kRequired,
                            .final_text = {},
                            .has_calls = plan.has_calls};
    if (plan.has_text) answer.final_text = texts.front();
    KVASIR_TRY(const GrammarSyntax::Expr all, HarmonyAnswerExpr(request.tools, answer, &rules));
    texts = {all};
  } else if (plan.has_calls) {
    KVASIR_TRY(const GrammarSyntax::Expr calls,
               CallsExpr(request.tools, context.dialect.tools, plan.begin, &rules));
    texts.push_back(calls);
  }
  GrammarSyntax::Expr text = rules.Alternatives(std::move(texts));
  if (plan.skips_blanks) {
    const CharSet blanks({{' ', ' '}, {'\n', '\n'}});
    text = rules.Sequence({rules.Repeat(rules.Chars(blanks), 0, 2), text});
  }
  const GrammarSyntax::Rule root = rules.RuleNamed("whole answer");
  rules.Define(root, text);
  auto grammar = Grammar::FromSyntax(rules, root);
  if (!grammar.ok()) {
    return GrammarError(grammar.error(), plan.has_text ? request.rule.field : "tools");
  }
  return grammar;
}

std::string KeyOf(const ServerContext& context, const ChatRequest& request, const Plan& plan) {
  std::string key = plan.skips_blanks ? "blanks " : plan.is_harmony ? "messages " : "";
  if (plan.has_calls) {
    const ToolRequest& tools = request.tools;
    key.append(ToolSyntaxName(context.dialect.tools))
        .append(plan.begin == CallBegin::kWithOpening ? " with " : " behind ")
        .append(tools.is_parallel ? "many " : "one ")
        .append(tools.choice == Choice::kRequired ? "required " : "")
        .append(Json(Json::Array(tools.only.begin(), tools.only.end())).Dump())
        .append(" ")
        .append(tools.tools.Dump())
        .append("\n");
  }
  return key + (plan.has_text ? request.rule.Key() : "");
}

void AppendText(std::string_view text, Json* message) {
  const Json* content = message->Find("content");
  std::string all = content != nullptr && content->is_string() ? content->as_string() : "";
  if (!all.empty()) all += "\n";
  message->Set("content", all.append(text));
}

Json Without(std::string_view key, const Json& message) {
  Json::Object rest = message.as_object();
  std::erase_if(rest, [&](const Json::Member& member) { return member.first == key; });
  return rest;
}

std::string OfferText(const Json& tools) {
  std::string text = "You can call functions that messages describe.";
  if (!tools.as_array().empty()) {
    text = "You can call these functions, each described by one line of JSON:\n<tools>\n";
    for (const Json& tool : tools.as_array()) text += tool.Find("function")->Dump() + "\n";
    text += "</tools>";
  }
  return text +
         "\nTo call one, write its name and arguments as a JSON object between tags:\n"
         "<tool_call>\n{\"name\": \"function\", \"arguments\": {}}\n</tool_call>";
}

std::string CallTexts(const Json& calls) {
  std::string text;
  for (const Json& call : calls.as_array()) {
    const Json& function = *call.Find("function");
    const Json* arguments = function.Find("arguments");
    const Json line = Json::Object{{"name", *function.Find("name")},
                                   {"arguments", arguments == nullptr ? Json() : *arguments}};
    if (!text.empty()) text += "\n";
    text.append("<tool_call>\n").append(line.Dump()).append("\n</tool_call>");
  }
  return text;
}

Json::Array CallsOf(const Json& message) {
  const Json* const calls = message.Find("tool_calls");
  return calls != nullptr && calls->is_array() ? calls->as_array() : Json::Array();
}

std::string TextOf(const Json& message, std::string_view field) {
  const Json* const text = message.Find(field);
  return text != nullptr && text->is_string() ? text->as_string() : std::string();
}

// What was answered with reasoning_format "none" comes back with its marks, which the template
// refuses.
Json WithMessagesApart(Json message) {
  HarmonyParser parser({});
  AnswerParts parts = parser.Push(TextOf(message, "content"));
  for (AnswerPart& part : parser.Finish()) parts.push_back(std::move(part));
  std::string text;
  std::string thought;
  for (const AnswerPart& part : parts) {
    (part.kind == AnswerPart::Kind::kReasoning ? thought : text) += part.text;
  }
  message.Set("content", std::move(text));
  if (!thought.empty()) message.Set("reasoning_content", std::move(thought));
  return message;
}

// gpt-oss's template calls thoughts otherwise, and writes them beside a call only without a text.
Json WithHarmonyThought(Json message) {
  if (const Json* calls = message.Find("tool_calls");
      calls != nullptr && CallsOf(message).empty()) {
    message = Without("tool_calls", message);
  }
  const std::string content = TextOf(message, "content");
  if (TextOf(message, "role") == kAssistant && content.find("<|message|>") != content.npos) {
    message = WithMessagesApart(std::move(message));
  }
  std::string thought = TextOf(message, "reasoning_content");
  if (thought.empty()) thought = TextOf(message, "thinking");
  if (thought.empty()) return message;
  const std::string text = TextOf(message, "content");
  if (!text.empty() && !CallsOf(message).empty()) {
    thought.append("\n\n").append(text);
    message.Set("content", "");
  }
  message.Set("thinking", std::move(thought));
  return message;
}

// It also writes one call of a message only: each becomes a message of its own, with its result
// behind it, which is known by its id, or by its place.
Json WithHarmonyTurns(const Json& messages) {
  Json::Array out;
  const Json::Array& all = messages.as_array();
  for (size_t i = 0; i < all.size(); ++i) {
    const Json message = WithHarmonyThought(all[i]);
    const Json::Array calls = CallsOf(message);
    if (calls.size() < 2) {
      out.push_back(message);
      continue;
    }
    std::unordered_map<std::string, const Json*, TextHash> results;
    std::vector<const Json*> others;  // without an id that is a call's
    std::unordered_set<std::string, TextHash> ids;
    for (const Json& call : calls) ids.insert(TextOf(call, "id"));
    for (; i + 1 < all.size() && *all[i + 1].Find("role") == Json("tool"); ++i) {
      const std::string id = TextOf(all[i + 1], "tool_call_id");
      const bool is_a_calls = ids.contains(id) && results.try_emplace(id, &all[i + 1]).second;
      if (!is_a_calls) others.push_back(&all[i + 1]);
    }
    size_t next = 0;  // of the others
    for (size_t k = 0; k < calls.size(); ++k) {
      Json one = k == 0 ? message : Json::Object{{"role", "assistant"}, {"content", ""}};
      one.Set("tool_calls", Json::Array{calls[k]});
      out.push_back(std::move(one));
      const auto result = results.find(TextOf(calls[k], "id"));
      if (result != results.end()) {
        out.push_back(*result->second);
      } else if (next < others.size()) {
        out.push_back(*others[next++]);
      }
    }
    for (; next < others.size(); ++next) out.push_back(*others[next]);
  }
  return out;
}

// Its template reads every tool's description.
Json WithDescriptions(const Json& tools) {
  Json::Array described = tools.as_array();
  for (Json& tool : described) {
    Json* const function = tool.Find("function");
    const Json* const description = function->Find("description");
    if (description == nullptr || !description->is_string()) function->Set("description", "");
  }
  return described;
}

// Mistral's templates take ids of nine letters and digits alone; others number theirs here.
Json WithShortCallIds(const Json& messages) {
  constexpr size_t kSize = 9;
  std::unordered_map<std::string, std::string, TextHash> known;
  const auto shorten = [&](Json* id) {
    if (id == nullptr || !id->is_string()) return;
    const std::string& text = id->as_string();
    const bool is_short = text.size() == kSize && std::ranges::all_of(text, [](unsigned char c) {
                            return c < 0x80 && std::isalnum(c) != 0;
                          });
    if (is_short) return;
    const std::string number = std::to_string(known.size());
    const auto [found, is_new] = known.try_emplace(
        text, "call" + std::string(kSize - 4 - std::min(kSize - 4, number.size()), '0') + number);
    *id = found->second;
  };
  Json::Array out = messages.as_array();
  for (Json& message : out) {
    Json* const calls = message.Find("tool_calls");
    if (calls != nullptr && calls->is_array()) {
      for (Json& call : calls->as_array()) shorten(call.Find("id"));
    }
    shorten(message.Find("tool_call_id"));
  }
  return out;
}

}  // namespace

Json ToolsAsText(const Json& messages, const ToolRequest& tools) {
  Json::Array texts;
  if (tools.is_on()) {
    texts.push_back(Json::Object{{"role", "system"}, {"content", OfferText(tools.Shown())}});
  }
  bool is_result = false;  // the last of `texts` holds one
  std::string joined;      // to the last of `texts`; once, however many there are
  const auto join = [&] {
    if (!joined.empty()) AppendText(std::exchange(joined, {}), &texts.back());
  };
  for (const Json& message : messages.as_array()) {
    const std::string& role = message.Find("role")->as_string();
    Json text = message;
    if (const Json* calls = message.Find("tool_calls"); calls != nullptr && calls->is_array()) {
      AppendText(CallTexts(*calls), &text);
      // A template that writes calls of its own would write it once more.
      text = Without("tool_calls", text);
    }
    // "function": as a tool's results were called once.
    const bool is_tool = role == "tool" || role == "function";
    if (is_tool) {
      const std::string result = message.Find("content")->as_string();
      text = Json::Object{
          {"role", "user"},
          {"content",
           std::string("<tool_response>\n").append(result).append("\n</tool_response>")}};
    }
    // Many templates want roles to alternate. What tools there are stands in one message with the
    // system's.
    const std::string last = texts.empty() ? "" : texts.back().Find("role")->as_string();
    const std::string next = text.Find("role")->as_string();
    const bool joins =
        last == next && (is_tool || is_result || (tools.is_on() && texts.size() == 1));
    is_result = is_tool || (is_result && joins);
    if (joins) {
      if (!joined.empty()) joined += "\n";
      joined += text.Find("content")->as_string();
    } else {
      join();
      texts.push_back(std::move(text));
    }
  }
  join();
  return texts;
}

Result<TextSegments> ChatPrompt(const ServerContext& context, const ChatRequest& request) {
  if (context.bundle->chat() == nullptr) {
    return {ErrorCode::kUnsupported,
            "this model has no chat template; use /v1/completions, or a model that was trained to "
            "chat"};
  }
  if (!context.dialect.has_tools) {
    return context.bundle->ChatText(
        ToolsAsText(context.bundle->WithSystem(request.messages), request.tools),
        request.template_variables, request.last_answer);
  }
  Json variables = request.template_variables;
  if (request.tools.is_on()) {
    const Json shown = request.tools.Shown();
    variables.Set("tools", context.dialect.is_harmony() ? WithDescriptions(shown) : shown);
  }
  const bool has_short_ids = CallOpening(context.dialect.tools) == "[TOOL_CALLS]";
  const bool has_marks = HasCallMarks(context.dialect);
  const Json given = has_marks ? WithoutCallMarks(request.messages) : request.messages;
  if (has_marks) variables = WithoutCallMarks(std::move(variables));
  const Json messages =
      has_short_ids ? WithShortCallIds(given)
      : context.dialect.is_harmony()
          ? WithHarmonyTurns(given)
          : WithDialect(context.bundle->InTurns(given), request.tools, context.dialect);
  // A call is never gone on with, also where it has become text.
  const LastAnswer last_answer =
      EndsUnfinished(request.messages) ? request.last_answer : LastAnswer::kFinished;
  KVASIR_TRY(TextSegments prompt, context.bundle->ChatText(messages, variables, last_answer));
  return has_marks ? WithCallMarks(prompt, context.dialect) : std::move(prompt);
}

std::optional<ApiError> CountChatTokens(const ServerContext& context, const ChatRequest& request,
                                        Json* count) {
  const auto prompt = ChatPrompt(context, request);
  if (!prompt.ok()) return TemplateError(context, prompt.error());
  const auto tokens = context.bundle->tokenizer()->EncodeSegments(*prompt, {.add_special = false});
  *count = Json::Object{{"input_tokens", static_cast<uint64_t>(tokens.size())}};
  return std::nullopt;
}

std::optional<ApiError> MakeChatJob(const ServerContext& context, const ChatRequest& request,
                                    AnswerJob* job) {
  const auto prompt = ChatPrompt(context, request);
  if (!prompt.ok()) return TemplateError(context, prompt.error());
  job->prompts = {context.bundle->tokenizer()->EncodeSegments(*prompt, {.add_special = false})};
  if (auto error = CheckPrompt(context, job->prompts.front(), "messages", true)) return error;

  const std::string text = Concatenate(*prompt);
  const ThoughtState thought = ThoughtAt(context.dialect, text);
  const bool is_in_text =
      context.dialect.is_harmony() && !WithoutTail(text).ends_with(kHarmonyTurn);
  const Plan plan = context.dialect.is_harmony() ? HarmonyPlanOf(request, is_in_text)
                                                 : PlanOf(context, request, thought);
  if (plan.has_calls || plan.has_text) {
    auto masks = context.grammars->Get(KeyOf(context, request, plan),
                                       [&] { return GrammarOf(context, request, plan); });
    if (!masks.ok()) return ToApiError(masks.error());
    job->constraint =
        std::make_shared<GrammarConstraintSource>(*std::move(masks), std::move(plan.before));
  }
  job->fields = request;
  if (context.dialect.is_harmony()) {
    // Of a row of messages they would end the first.
    const std::vector<std::string> marks = context.dialect.Markers();
    std::erase_if(job->fields.stop_strings, [&](const std::string& stop) {
      return std::find(marks.begin(), marks.end(), stop) != marks.end();
    });
  }
  job->parser.dialect = context.dialect;
  job->parser.reads_thoughts = context.reads_thoughts && request.reads_thoughts;
  job->parser.starts_in_thought = thought == ThoughtState::kOpen;
  job->parser.starts_in_text = is_in_text;
  if (request.tools.is_on()) job->parser.tools = request.tools.tools;
  job->parser.must_call = request.tools.choice == Choice::kRequired;
  job->shown_special = context.markers;
  job->has_short_call_ids = CallOpening(context.dialect.tools) == "[TOOL_CALLS]";
  return std::nullopt;
}

}  // namespace kvasir
