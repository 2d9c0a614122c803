// GenerationFields: what the requests of all routes that generate have in common.
// Deliberately without the prompt: that is where the APIs differ.
#ifndef KVASIR_SERVER_REQUEST_FIELDS_H_
#define KVASIR_SERVER_REQUEST_FIELDS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/sampling/sampling_options.h"
#include "kvasir/server/output_rule.h"

namespace kvasir {

// What holds where a request says nothing, and what bounds it.
struct ChatDefaults {
  // OpenAI's own: sampling from the whole distribution.
  SamplingOptions sampling = {.temperature = 1.0};
  int64_t vocab_size = 0;  // tokens that logit_bias may name
  int64_t slots = 1;       // that id_slot may name
};

struct GenerationFields {
  std::string model;         // empty: not given
  SamplingOptions sampling;  // valid; the seed is not set here
  std::optional<uint64_t> seed;
  std::optional<int64_t> max_tokens;  // absent: as many as the context holds
  std::vector<std::string> stop_strings;
  int64_t choices = 1;                  // n, per prompt
  std::optional<int64_t> top_logprobs;  // GenerationRequest
  bool ignore_stop_tokens = false;
  std::optional<int64_t> max_drafts;  // GenerationRequest
  std::string cache_salt;             // who shares cached prefixes; empty: all with the same key
  int64_t priority = 0;               // smaller goes first
  std::optional<int64_t> slot;        // that remembers the conversation
  OutputRule rule;
  std::optional<int64_t> timeout_ms;  // the answer's time from its arrival on
  bool is_stream = false;
  bool includes_usage = false;  // in a stream
};

inline constexpr size_t kMaxStopStrings = 16;
inline constexpr size_t kMaxStopStringBytes = 1024;
inline constexpr int64_t kMaxChoices = 128;  // of one request, over all its prompts
inline constexpr int64_t kMaxTopLogprobs = 20;
inline constexpr int64_t kMaxPriority = 1000;

// Everything but top_logprobs, which the APIs write differently. max_tokens below
// `least_max_tokens` is refused. ERRORS: as ParseChatRequest.
Result<GenerationFields> ParseGenerationFields(const Json& body, const ChatDefaults& defaults,
                                               int64_t least_max_tokens);

// cache_salt, priority, id_slot and timeout_ms, as every API of this server has them.
// ERRORS: as ParseChatRequest.
Status ParsePlace(const Json& body, int64_t slots, GenerationFields* fields);

// The name that answers echo; empty: not given. ERRORS: as ParseChatRequest.
Result<std::string> ParseModelName(const Json& body);

// A field that would change the answer and is not supported, with the values that ask for nothing.
struct UnsupportedField {
  std::string_view name;
  bool (*is_neutral)(const Json& value);
  std::string_view what;
};
// ERRORS: kUnsupported "field 'name' what".
Status RefuseUnsupported(const Json& body, std::span<const UnsupportedField> fields);

// "field 'name' rest", the form that becomes an error's param.
Error FieldError(ErrorCode code, std::string_view field, std::string_view rest);
Error WrongType(std::string_view field, std::string_view wanted, const Json& found);
// The member, or nullptr when it is absent or null.
const Json* FindSet(const Json& body, std::string_view field);
// The members of an object but for `names`, as a body of another API's.
Json FieldsBut(std::span<const std::string_view> names, const Json& body);
// Thoughts of one turn, which APIs of blocks may give in several.
std::string JoinThoughts(std::string before, std::string_view thought);
// ERRORS: kCorrupt if it is no object.
Status RequireObject(const Json& body);

}  // namespace kvasir

#endif  // KVASIR_SERVER_REQUEST_FIELDS_H_
