// ChatDialect: how the answers of a model's family write thoughts and tool calls.
// Deliberately read off the chat template: it is where a family says how it was trained to speak.
#ifndef KVASIR_CHAT_CHAT_DIALECT_H_
#define KVASIR_CHAT_CHAT_DIALECT_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvasir {

enum class ToolSyntax {
  kHermes,       // <tool_call>{"name": "f", "arguments": {}}</tool_call>: Qwen2.5, Qwen3, Hermes
  kQwenXml,      // <tool_call><function=f><parameter=k>v</parameter></function></tool_call>
  kLlama,        // {"name": "f", "parameters": {}}, or <|python_tag|>f.call(k="v")
  kMistral,      // [TOOL_CALLS][{"name": "f", "arguments": {}}]
  kMistralArgs,  // [TOOL_CALLS]f[ARGS]{}
  kGranite,      // <|tool_call|>[{"name": "f", "arguments": {}}]: Granite 3
  kGemma,        // <|tool_call>call:f{k:<|"|>v<|"|>}<tool_call|>: Gemma 4
  kLfm2,         // <|tool_call_start|>[f(k="v"), g()]<|tool_call_end|>: LFM2, LFM2.5
  kOlmo3,        // <function_calls>f(k="v")</function_calls>, a line each: OLMo 3
  kPhi4Mini,     // functools[{"name": "f", "arguments": {}}]: Phi-4-mini
  kGlm,          // <tool_call>f<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>: GLM-4.5
  kHarmony,      // a message to=functions.f of its own: gpt-oss (harmony_parser.h)
};

struct ChatDialect {
  // Templates that know no tools get them as Hermes models do, in the system message.
  ToolSyntax tools = ToolSyntax::kHermes;
  bool has_tools = false;  // the template writes tools itself
  // ... which it takes from the system's message, where they are a text (kPhi4Mini).
  bool takes_tools_from_system = false;
  bool has_calls = false;  // the template writes calls that were made
  // Around thoughts; empty: the model has none.
  std::string think_open;
  std::string think_close;

  // Between marks within a text.
  bool thinks() const { return !think_close.empty(); }
  // The answer is a row of messages, also of thoughts.
  bool is_harmony() const { return tools == ToolSyntax::kHarmony; }
  // Tokens an answer is read by. Where they are special, their text must be kept.
  std::vector<std::string> Markers() const;
};

// `templates`: the text of the model's chat templates. `tools`: how calls are written, whatever
// they say of it; nullopt: as they do.
ChatDialect DialectOf(std::string_view templates, std::optional<ToolSyntax> tools = std::nullopt);

// "hermes", "qwen-xml", "llama", "mistral", "mistral-args", "granite", "gemma", "lfm2", "olmo3",
// "phi4-mini", "glm", "harmony"
std::optional<ToolSyntax> ToolSyntaxNamed(std::string_view name);
std::string_view ToolSyntaxName(ToolSyntax syntax);
// All of them, with commas.
std::string ToolSyntaxNames();
// What a call begins with; empty: with its JSON (kLlama).
std::string_view CallOpening(ToolSyntax syntax);
// All that a call may begin with; of kLlama the one that is never shown.
std::vector<std::string> CallOpenings(ToolSyntax syntax);

}  // namespace kvasir

#endif  // KVASIR_CHAT_CHAT_DIALECT_H_
