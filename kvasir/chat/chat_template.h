// ChatTemplate: the Jinja template of a model that turns messages into a prompt, in the dialect of
// Hugging Face transformers (docs/chat-templates.md).
// Deliberately not a general Jinja: one file, no includes, no HTML escaping by default.
#ifndef KVASIR_CHAT_CHAT_TEMPLATE_H_
#define KVASIR_CHAT_CHAT_TEMPLATE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/base/text_segment.h"
#include "kvasir/chat/limits.h"

namespace kvasir {

using chat::ChatTemplateLimits;

struct RenderOptions {
  ChatTemplateLimits limits;
  // Top-level variables that come from the model's own files and not from a request: their text may
  // become special tokens. Whoever lets a request set variables must keep these names out of it.
  std::vector<std::string> trusted_variables = {"bos_token", "eos_token", "pad_token", "unk_token",
                                                "sep_token", "cls_token", "mask_token"};
  // What strftime_now shows: seconds since 1970-01-01 00:00 on the clock of the reader's time zone.
  // Without it a template that asks for the time is an error.
  std::optional<int64_t> local_seconds;
};

// THREADS: immutable; any number of threads may render at once.
class ChatTemplate {
 public:
  // `name` stands in messages: a path or model name.
  // ERRORS: kCorrupt, kUnsupported: "name:line: what is wrong"; kResourceExhausted above 512 KiB.
  static Result<std::unique_ptr<const ChatTemplate>> Parse(std::string_view source,
                                                           std::string name);

  ~ChatTemplate();

  // `variables`: an object with messages, tools, add_generation_prompt, bos_token, ...; what is
  // absent is undefined. The result is the prompt in maximal runs of equal trust: trusted text was
  // written by the template, stands in a trusted variable, or is the member "role" of an element of
  // `messages` with one of kMessageRoles (message_roles.h); everything else came in.
  // ERRORS: kInvalidArgument when the template raises or misuses a value, kResourceExhausted when a
  // limit is passed, kFailedPrecondition when it wants the time: "name:line: message".
  Result<TextSegments> Render(const Json& variables, const RenderOptions& options = {}) const;

 private:
  struct Tree;

  ChatTemplate(std::string name, std::unique_ptr<const Tree> tree);

  std::string name_;
  std::unique_ptr<const Tree> tree_;
};

// The text without its provenance.
std::string Concatenate(const TextSegments& segments);

}  // namespace kvasir

#endif  // KVASIR_CHAT_CHAT_TEMPLATE_H_
