#include "kvasir/server/chat_job.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "kvasir/engine/grammar_constraint.h"
#include "kvasir/server/call_marks.h"
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

}  // namespace

Result<TextSegments> ChatPrompt(const ServerContext& context, const ChatRequest& request) {
  if (context.bundle->chat() == nullptr) {
    return {ErrorCode::kUnsupported,
            "this model has no chat template; use /v1/completions, or a model that was trained to "
            "chat"};
  }
  Json variables = request.template_variables;
  if (context.dialect.has_tools && request.tools.is_on()) {
    const Json shown = request.tools.Shown();
    variables.Set("tools", context.dialect.is_harmony() ? WithDescriptions(shown) : shown);
  }
  const bool has_marks = HasCallMarks(context.dialect);
  if (has_marks) variables = WithoutCallMarks(std::move(variables));
  // A call is never gone on with, also where it has become text.
  const LastAnswer last_answer =
      EndsUnfinished(request.messages) ? request.last_answer : LastAnswer::kFinished;
  KVASIR_TRY(TextSegments prompt,
             context.bundle->ChatText(MessagesFor(context, request), variables, last_answer));
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
  job->has_short_call_ids = HasShortCallIds(context.dialect);
  return std::nullopt;
}

}  // namespace kvasir
