// ToolRequest: the tools a request offers, and whether they must be used.
// Deliberately OpenAI's form only: the other APIs' requests are translated into it first.
#ifndef KVASIR_SERVER_TOOL_REQUEST_H_
#define KVASIR_SERVER_TOOL_REQUEST_H_

#include <string>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/chat/chat_dialect.h"
#include "kvasir/grammar/grammar_syntax.h"

namespace kvasir {

struct ToolRequest {
  enum class Choice { kNone, kAuto, kRequired };
  // [{"type": "function", "function": {"name", "description"?, "parameters"?, ...}}]; null: none.
  // Those with "defer_loading": true may be called, but the prompt does not begin with them.
  Json tools;
  Choice choice = Choice::kNone;  // kNone as well when there are no tools
  std::vector<std::string> only;  // the tools that may be used; empty: all
  bool is_parallel = true;        // several calls in one answer

  bool is_on() const { return choice != Choice::kNone; }
  Json Shown() const;  // those of `tools` that the prompt begins with
};

inline constexpr size_t kMaxTools = 1024;

// tools, tool_choice, parallel_tool_calls. ERRORS: as ParseChatRequest.
Result<ToolRequest> ParseToolRequest(const Json& body);

// Whether a grammar can say what calls of this family look like. Of the others only the beginning
// is held to, where a call is required.
bool HasCallGrammar(ToolSyntax syntax);

// The text of one or more calls, with their opening or behind it. A tool's parameters are held to
// if its schema can be, else they are any object; "strict" ones are refused then.
// REQUIRES: request.is_on(). ERRORS: kUnsupported, kInvalidArgument "field 'tools[0]...".
// REQUIRES: not kHarmony, whose calls are messages of an answer (HarmonyAnswerExpr).
enum class CallBegin { kWithOpening, kBehindOpening };
Result<GrammarSyntax::Expr> CallsExpr(const ToolRequest& request, ToolSyntax syntax,
                                      CallBegin begin, GrammarSyntax* rules);

// A whole answer of gpt-oss: thoughts and words to the user, then a final message, or a call of the
// request's tools. `final_text`: what the final message is held to; `has_final`, `has_calls`: which
// of the two may come. ERRORS: as CallsExpr. REQUIRES: one may; tools are on where calls may.
struct HarmonyAnswer {
  bool has_final = false;
  std::optional<GrammarSyntax::Expr> final_text;  // none: any text
  bool has_calls = false;
};
Result<GrammarSyntax::Expr> HarmonyAnswerExpr(const ToolRequest& request,
                                              const HarmonyAnswer& answer, GrammarSyntax* rules);

}  // namespace kvasir

#endif  // KVASIR_SERVER_TOOL_REQUEST_H_
