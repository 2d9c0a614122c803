// MessageTools: the tools of Anthropic's API as those of a chat request, and those among them that
// a conversation finds while it goes on.
// Deliberately without search: the client has a tool for it, whose results name what it found.
#ifndef KVASIR_SERVER_MESSAGE_TOOLS_H_
#define KVASIR_SERVER_MESSAGE_TOOLS_H_

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/base/text_hash.h"

namespace kvasir {

class MessageTools {
 public:
  // [{"name", "description", "input_schema", "defer_loading"?}], or null for none. Tools with
  // defer_loading stay out of the prompt's beginning, which would change with each that is found,
  // unless the service's own search is asked for: nobody runs it here, so all are shown.
  // ERRORS: as ParseChatRequest.
  static Result<MessageTools> Parse(const Json* tools);

  // What a tool_reference says to the model: where a tool that was not shown is named first, how it
  // is called, which may be done from there on; else the name.
  std::string Reference(const std::string& name);

  // Those of a chat request: what is shown, and what a reference named, with defer_loading.
  Json ChatTools() const;

 private:
  struct Tool {
    Json function;
    bool is_deferred = false;
    bool is_found = false;
  };
  std::vector<Tool> tools_;
  std::unordered_map<std::string, size_t, TextHash> by_name_;  // the first of each
};

// {"type": "auto" | "any" | "tool" | "none", "name", "disable_parallel_tool_use"} as tool_choice
// and parallel_tool_calls of a chat request. ERRORS: as ParseChatRequest.
Status SetToolChoice(const Json& choice, Json* chat);

}  // namespace kvasir

#endif  // KVASIR_SERVER_MESSAGE_TOOLS_H_
