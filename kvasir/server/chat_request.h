// ChatRequest: the body of POST /v1/chat/completions, checked and resolved.
// Deliberately without sockets, tokens and model: any text can be thrown at it.
#ifndef KVASIR_SERVER_CHAT_REQUEST_H_
#define KVASIR_SERVER_CHAT_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/sampling/sampling_options.h"

namespace kvasir {

// What holds where a request says nothing, and what bounds it.
struct ChatDefaults {
  // OpenAI's own: sampling from the whole distribution.
  SamplingOptions sampling = {.temperature = 1.0};
  int64_t vocab_size = 0;  // tokens that logit_bias may name
};

struct ChatRequest {
  // Objects {role, content, ...} as the template reads them: content is a string, the role
  // "developer" has become "system", other members are as they came. Not empty.
  Json messages;
  Json template_variables;   // chat_template_kwargs: an object, or null
  std::string model;         // empty: not given
  SamplingOptions sampling;  // valid; the seed is not set here
  std::optional<uint64_t> seed;
  std::optional<int64_t> max_tokens;  // at least 1; absent: as many as the context holds
  std::vector<std::string> stop_strings;
  bool ignore_stop_tokens = false;
  bool is_stream = false;
  bool includes_usage = false;  // in a stream
};

inline constexpr size_t kMaxStopStrings = 16;
inline constexpr size_t kMaxStopStringBytes = 1024;

// `body` is consumed. Fields nobody knows are ignored, null means absent. ERRORS: kCorrupt for
// wrong types, kInvalidArgument for values out of range, kUnsupported for what this server cannot
// do yet; the message begins with "field 'name'".
Result<ChatRequest> ParseChatRequest(Json body, const ChatDefaults& defaults);

}  // namespace kvasir

#endif  // KVASIR_SERVER_CHAT_REQUEST_H_
