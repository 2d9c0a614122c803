#include "kvasir/server/request_fields.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "kvasir/sampling/sampling_fields.h"

namespace kvasir {
namespace {

// Longer names are not echoed: every chunk of a stream repeats them.
constexpr size_t kMaxModelNameBytes = 256;

// {"token id": bias}. -100 and 100 are OpenAI's "never" and "always": plain sums, as there.
Result<std::vector<TokenBias>> ParseLogitBias(const Json& value) {
  if (!value.is_object()) return WrongType("logit_bias", "an object {token id: bias}", value);
  std::vector<TokenBias> biases;
  biases.reserve(value.as_object().size());
  for (const auto& [key, bias] : value.as_object()) {
    Token token = 0;
    const std::errc error = std::from_chars(key.data(), key.data() + key.size(), token).ec;
    // One way to write each id: so there are no more of them than tokens.
    if (error != std::errc() || key != std::to_string(token)) {
      return FieldError(ErrorCode::kInvalidArgument, "logit_bias",
                        "must have token ids, written as integers, for keys");
    }
    if (!bias.is_number() || !(std::fabs(bias.as_double()) <= 100)) {
      return FieldError(ErrorCode::kInvalidArgument, "logit_bias",
                        "must have numbers from -100 to 100 for values");
    }
    biases.push_back({token, static_cast<float>(bias.as_double())});
  }
  return biases;
}

Result<SamplingOptions> ParseSampling(const Json& body, const ChatDefaults& defaults) {
  SamplingOptions options = defaults.sampling;
  KVASIR_TRY(options.temperature, body.GetDoubleOr("temperature", options.temperature));
  KVASIR_TRY(options.top_p, body.GetDoubleOr("top_p", options.top_p));
  if (options.top_p < 0) {
    return FieldError(ErrorCode::kInvalidArgument, "top_p",
                      "must be between 0 and 1, not " + Json(options.top_p).Dump());
  }
  // OpenAI's range includes 0, which leaves the likeliest token.
  if (options.top_p == 0.0) options.top_p = std::numeric_limits<double>::min();
  KVASIR_TRY(options.top_k, body.GetIntOr("top_k", options.top_k));
  if (options.top_k < -1) {
    return FieldError(ErrorCode::kInvalidArgument, "top_k",
                      "must be at least 0, or -1 for off, not " + std::to_string(options.top_k));
  }
  // Off, as other servers write it.
  if (options.top_k == -1) options.top_k = 0;
  KVASIR_TRY(options.min_p, body.GetDoubleOr("min_p", options.min_p));
  const std::string_view repetition =
      FindSet(body, "repetition_penalty") != nullptr ? "repetition_penalty" : "repeat_penalty";
  KVASIR_TRY(options.repetition_penalty, body.GetDoubleOr(repetition, options.repetition_penalty));
  KVASIR_TRY(options.frequency_penalty,
             body.GetDoubleOr("frequency_penalty", options.frequency_penalty));
  KVASIR_TRY(options.presence_penalty,
             body.GetDoubleOr("presence_penalty", options.presence_penalty));
  if (const Json* bias = FindSet(body, "logit_bias")) {
    KVASIR_TRY(options.logit_bias, ParseLogitBias(*bias));
  }
  KVASIR_TRY_OK(ReadSamplingFields(body, &options));
  const Status valid = options.Validate(defaults.vocab_size);
  if (valid.ok()) return options;
  // By the name that the client gave it.
  constexpr std::string_view kName = "'repetition_penalty'";
  Error error = valid.error();
  if (const size_t at = error.message.find(kName); at != std::string::npos) {
    error.message.replace(at + 1, kName.size() - 2, repetition);
  }
  return error;
}

Result<std::vector<std::string>> ParseStop(const Json& body) {
  const Json* stop = FindSet(body, "stop");
  std::vector<std::string> strings;
  if (stop == nullptr) return strings;
  const Json::Array one = {*stop};
  if (!stop->is_string() && !stop->is_array()) {
    return WrongType("stop", "a string or an array of strings", *stop);
  }
  for (const Json& entry : stop->is_array() ? stop->as_array() : one) {
    if (!entry.is_string()) return WrongType("stop", "a string or an array of strings", entry);
    if (entry.as_string().size() > kMaxStopStringBytes) {
      return FieldError(ErrorCode::kInvalidArgument, "stop",
                        "must have strings of at most 1024 bytes");
    }
    strings.push_back(entry.as_string());
    if (strings.size() > kMaxStopStrings) {
      return FieldError(ErrorCode::kInvalidArgument, "stop", "must have at most 16 strings");
    }
  }
  return strings;
}

Result<std::optional<int64_t>> ParseMaxTokens(const Json& body, int64_t least) {
  const std::string_view field =
      FindSet(body, "max_completion_tokens") != nullptr ? "max_completion_tokens" : "max_tokens";
  // -1 is what clients of llama.cpp's server write for "no limit".
  KVASIR_TRY(const int64_t tokens, body.GetIntOr(field, -1));
  if (tokens == -1) return std::optional<int64_t>();
  if (tokens < least) {
    return FieldError(ErrorCode::kInvalidArgument, field,
                      "must be at least " + std::to_string(least) + ", or -1 for no limit");
  }
  return std::optional<int64_t>(tokens);
}

Result<std::optional<uint64_t>> ParseSeed(const Json& body) {
  if (const Json* seed = body.Find("seed"); seed != nullptr && seed->is_above_int()) {
    return std::optional<uint64_t>(seed->as_above_int());
  }
  // As with max_tokens: -1 asks for a random one.
  KVASIR_TRY(const int64_t seed, body.GetIntOr("seed", -1));
  if (seed == -1) return std::optional<uint64_t>();
  return std::optional<uint64_t>(static_cast<uint64_t>(seed));
}

Result<bool> ParseIncludeUsage(const Json& body) {
  const Json* options = FindSet(body, "stream_options");
  if (options == nullptr) return false;
  if (!options->is_object()) return WrongType("stream_options", "an object", *options);
  const Json* usage = FindSet(*options, "include_usage");
  if (usage == nullptr) return false;
  if (!usage->is_bool()) return WrongType("stream_options.include_usage", "a boolean", *usage);
  return usage->as_bool();
}

Result<int64_t> ParseChoices(const Json& body) {
  KVASIR_TRY(const int64_t choices, body.GetIntOr("n", 1));
  if (choices < 1 || choices > kMaxChoices) {
    return FieldError(ErrorCode::kInvalidArgument, "n",
                      "must be 1 to " + std::to_string(kMaxChoices));
  }
  return choices;
}

// As mlx-lm and llama-server name it.
Result<std::optional<int64_t>> ParseMaxDrafts(const Json& body) {
  std::optional<int64_t> most;
  for (const char* field : {"num_draft_tokens", "speculative.n_max"}) {
    if (FindSet(body, field) == nullptr) continue;
    KVASIR_TRY(const int64_t value, body.GetIntOr(field, 0));
    if (value < 0) return FieldError(ErrorCode::kInvalidArgument, field, "must be 0 or more");
    most = value;
  }
  return most;
}

}  // namespace

Json FieldsBut(std::span<const std::string_view> names, const Json& body) {
  // Not by Json::Set, which would look for each among all the others.
  Json::Object taken;
  for (const Json::Member& member : body.as_object()) {
    if (std::find(names.begin(), names.end(), member.first) == names.end()) taken.push_back(member);
  }
  return Json(std::move(taken));
}

std::string JoinThoughts(std::string before, std::string_view thought) {
  if (!before.empty() && !thought.empty()) before += '\n';
  before += thought;
  return before;  // moved, which what append() returns would not be
}

Error FieldError(ErrorCode code, std::string_view field, std::string_view rest) {
  return {code, "field '" + std::string(field) + "' " + std::string(rest)};
}

Error WrongType(std::string_view field, std::string_view wanted, const Json& found) {
  return FieldError(ErrorCode::kCorrupt, field,
                    "must be " + std::string(wanted) + ", not " + std::string(found.type_name()));
}

// The member, or nullptr when it is absent or null.
const Json* FindSet(const Json& body, std::string_view field) {
  const Json* value = body.Find(field);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Status RequireObject(const Json& body) {
  if (body.is_object()) return {};
  return {ErrorCode::kCorrupt,
          "the body must be a JSON object, not " + std::string(body.type_name())};
}

Status RefuseUnsupported(const Json& body, std::span<const UnsupportedField> fields) {
  for (const UnsupportedField& field : fields) {
    const Json* value = FindSet(body, field.name);
    if (value == nullptr || field.is_neutral(*value)) continue;
    return FieldError(ErrorCode::kUnsupported, field.name, field.what);
  }
  return {};
}

Result<std::string> ParseModelName(const Json& body) {
  KVASIR_TRY(std::string model, body.GetStringOr("model", ""));
  if (model.size() <= kMaxModelNameBytes) return model;
  return FieldError(ErrorCode::kInvalidArgument, "model", "must be at most 256 bytes long");
}

Result<std::optional<int64_t>> ParseTimeout(const Json& body) {
  if (FindSet(body, "timeout_ms") == nullptr) return std::optional<int64_t>();
  constexpr int64_t kMostMs = 1'000'000'000;
  KVASIR_TRY(const int64_t ms, body.GetInt("timeout_ms"));
  if (ms >= 1 && ms <= kMostMs) return std::optional<int64_t>(ms);
  return FieldError(ErrorCode::kInvalidArgument, "timeout_ms", "must be 1 to 1000000000");
}

Status ParsePlace(const Json& body, int64_t slots, GenerationFields* fields) {
  KVASIR_TRY(fields->cache_salt, body.GetStringOr("cache_salt", ""));
  KVASIR_TRY(fields->priority, body.GetIntOr("priority", 0));
  if (fields->priority < -kMaxPriority || fields->priority > kMaxPriority) {
    return FieldError(ErrorCode::kInvalidArgument, "priority", "must be -1000 to 1000");
  }
  KVASIR_TRY(const int64_t slot, body.GetIntOr("id_slot", -1));
  if (slot < -1 || slot >= slots) {
    return FieldError(ErrorCode::kInvalidArgument, "id_slot",
                      "must be -1 to " + std::to_string(slots - 1));
  }
  if (slot >= 0) fields->slot = slot;
  KVASIR_TRY(fields->timeout_ms, ParseTimeout(body));
  return {};
}

Result<GenerationFields> ParseGenerationFields(const Json& body, const ChatDefaults& defaults,
                                               int64_t least_max_tokens) {
  GenerationFields fields;
  KVASIR_TRY(fields.model, ParseModelName(body));
  KVASIR_TRY(fields.sampling, ParseSampling(body, defaults));
  KVASIR_TRY(fields.seed, ParseSeed(body));
  KVASIR_TRY(fields.max_tokens, ParseMaxTokens(body, least_max_tokens));
  KVASIR_TRY(fields.stop_strings, ParseStop(body));
  KVASIR_TRY(fields.choices, ParseChoices(body));
  KVASIR_TRY(fields.ignore_stop_tokens, body.GetBoolOr("ignore_eos", false));
  KVASIR_TRY(fields.max_drafts, ParseMaxDrafts(body));
  KVASIR_TRY_OK(ParsePlace(body, defaults.slots, &fields));
  KVASIR_TRY(fields.rule, ParseOutputRule(body));
  KVASIR_TRY(fields.is_stream, body.GetBoolOr("stream", false));
  KVASIR_TRY(fields.includes_usage, ParseIncludeUsage(body));
  return fields;
}

}  // namespace kvasir
