#include "kvasir/chat/chat_dialect.h"

#include <array>
#include <utility>

namespace kvasir {
namespace {

constexpr std::array<std::pair<ToolSyntax, std::string_view>, 12> kNames = {{
    {ToolSyntax::kHermes, "hermes"},
    {ToolSyntax::kQwenXml, "qwen-xml"},
    {ToolSyntax::kLlama, "llama"},
    {ToolSyntax::kMistral, "mistral"},
    {ToolSyntax::kMistralArgs, "mistral-args"},
    {ToolSyntax::kGranite, "granite"},
    {ToolSyntax::kGemma, "gemma"},
    {ToolSyntax::kLfm2, "lfm2"},
    {ToolSyntax::kOlmo3, "olmo3"},
    {ToolSyntax::kPhi4Mini, "phi4-mini"},
    {ToolSyntax::kGlm, "glm"},
    {ToolSyntax::kHarmony, "harmony"},
}};

// The first that occurs decides; what is rarer stands first.
constexpr std::array<std::pair<std::string_view, ToolSyntax>, 15> kSigns = {{
    {"<|channel|>", ToolSyntax::kHarmony},
    {"<|tool_call>", ToolSyntax::kGemma},
    // What LFM2's templates have of it differs: tools behind these words, marks around them or
    // calls.
    {"<|tool_call_start|>", ToolSyntax::kLfm2},
    {"<|tool_list_start|>", ToolSyntax::kLfm2},
    {"<function_calls>", ToolSyntax::kOlmo3},
    // Phi-4-mini's shows tools between these marks; others for it say the word.
    {"<|/tool|>", ToolSyntax::kPhi4Mini},
    {"functools", ToolSyntax::kPhi4Mini},
    {"<|tool_call|>", ToolSyntax::kGranite},
    {"<function=", ToolSyntax::kQwenXml},
    {"<arg_key>", ToolSyntax::kGlm},
    {"<tool_call>", ToolSyntax::kHermes},
    {"[ARGS]", ToolSyntax::kMistralArgs},
    {"[TOOL_CALLS]", ToolSyntax::kMistral},
    {"<|python_tag|>", ToolSyntax::kLlama},
    {"List of tools: ", ToolSyntax::kLfm2},
}};

constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kThoughts = {{
    {"<think>", "</think>"},
    {"[THINK]", "[/THINK]"},
    {"<|channel>thought\n", "<channel|>"},
}};

}  // namespace

ChatDialect DialectOf(std::string_view templates, std::optional<ToolSyntax> tools) {
  const auto has = [&](std::string_view text) { return templates.find(text) != templates.npos; };
  ChatDialect dialect;
  dialect.has_tools = has("tools");
  for (const auto& [sign, syntax] : kSigns) {
    if (!has(sign)) continue;
    dialect.tools = syntax;
    break;
  }
  // Templates of OLMo 3 from before it was taught to call have its marks alone.
  if (dialect.tools == ToolSyntax::kOlmo3 && !dialect.has_tools)
    dialect.tools = ToolSyntax::kHermes;
  dialect.has_calls = has("tool_calls");
  // Llama 3.2's template has no tag; all since 3.1 call the role of results so.
  if (dialect.tools == ToolSyntax::kHermes && !has("<tool_call>") && has("ipython")) {
    dialect.tools = ToolSyntax::kLlama;
  }
  dialect.tools = tools.value_or(dialect.tools);
  dialect.takes_tools_from_system =
      dialect.tools == ToolSyntax::kPhi4Mini && (has("message['tools']") || has("message.tools"));
  for (const auto& [open, close] : kThoughts) {
    if (!has(close)) continue;
    dialect.think_open = open;
    dialect.think_close = close;
    break;
  }
  return dialect;
}

std::vector<std::string> ChatDialect::Markers() const {
  std::vector<std::string> markers;
  switch (tools) {
    case ToolSyntax::kHermes:
    case ToolSyntax::kQwenXml:
      markers = {"<tool_call>", "</tool_call>"};
      break;
    case ToolSyntax::kLlama:
      markers = {"<|python_tag|>"};
      break;
    case ToolSyntax::kMistral:
    case ToolSyntax::kMistralArgs:
      markers = {"[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"};
      break;
    case ToolSyntax::kGranite:
      markers = {"<|tool_call|>"};
      break;
    case ToolSyntax::kGemma:
      markers = {"<|tool_call>", "<tool_call|>", "<|\"|>"};
      break;
    case ToolSyntax::kLfm2:
      markers = {"<|tool_call_start|>", "<|tool_call_end|>"};
      break;
    case ToolSyntax::kOlmo3:
      markers = {"<function_calls>", "</function_calls>"};
      break;
    case ToolSyntax::kPhi4Mini:
      markers = {"<|tool_call|>", "<|/tool_call|>"};
      break;
    case ToolSyntax::kGlm:
      markers = {"<tool_call>", "</tool_call>", "<arg_key>",
                 "</arg_key>",  "<arg_value>",  "</arg_value>"};
      break;
    case ToolSyntax::kHarmony:
      markers = {"<|start|>",     "<|channel|>", "<|message|>", "<|end|>",
                 "<|constrain|>", "<|call|>",    "<|return|>"};
      break;
  }
  if (!thinks()) return markers;
  // The rest of "<|channel>thought\n" is ordinary text.
  const bool is_channel = think_open.starts_with("<|channel>");
  markers.push_back(is_channel ? "<|channel>" : think_open);
  markers.push_back(think_close);
  return markers;
}

std::optional<ToolSyntax> ToolSyntaxNamed(std::string_view name) {
  for (const auto& [syntax, known] : kNames) {
    if (known == name) return syntax;
  }
  return std::nullopt;
}

std::string_view ToolSyntaxName(ToolSyntax syntax) {
  for (const auto& [known, name] : kNames) {
    if (known == syntax) return name;
  }
  return "";
}

std::string ToolSyntaxNames() {
  std::string names;
  for (const auto& [known, name] : kNames) names.append(names.empty() ? "" : ", ").append(name);
  return names;
}

std::string_view CallOpening(ToolSyntax syntax) {
  switch (syntax) {
    case ToolSyntax::kHermes:
    case ToolSyntax::kQwenXml:
    case ToolSyntax::kGlm:
      return "<tool_call>";
    case ToolSyntax::kLlama:
      return "";
    case ToolSyntax::kMistral:
    case ToolSyntax::kMistralArgs:
      return "[TOOL_CALLS]";
    case ToolSyntax::kGranite:
      return "<|tool_call|>";
    case ToolSyntax::kGemma:
      return "<|tool_call>";
    case ToolSyntax::kLfm2:
      return "<|tool_call_start|>";
    case ToolSyntax::kOlmo3:
      return "<function_calls>";
    case ToolSyntax::kPhi4Mini:
      return "functools[";
    case ToolSyntax::kHarmony:
      return "<|channel|>commentary to=functions.";
  }
  return "";
}

std::vector<std::string> CallOpenings(ToolSyntax syntax) {
  if (syntax == ToolSyntax::kLlama) return {"<|python_tag|>"};
  std::vector<std::string> openings = {std::string(CallOpening(syntax))};
  // Phi-4-mini has tokens for calls, which it writes where nobody told it of the word.
  if (syntax == ToolSyntax::kPhi4Mini) openings.emplace_back("<|tool_call|>");
  return openings;
}

}  // namespace kvasir
