#include "kvasir/formats/generation_config.h"

#include <algorithm>
#include <limits>
#include <string>

namespace kvasir {
namespace {

// Models list a handful; the bound keeps a hostile list from becoming work in every step.
constexpr size_t kMaxTokenIds = 1024;

Error Corrupt(std::string_view field, std::string_view reason) {
  return {ErrorCode::kCorrupt, "field '" + std::string(field) + "' " + std::string(reason)};
}

Result<Token> ReadId(const Json& value, std::string_view field) {
  if (!value.is_int() || value.as_int() < 0 || value.as_int() > std::numeric_limits<Token>::max()) {
    return Corrupt(field, "must be a token id or a list of them");
  }
  return static_cast<Token>(value.as_int());
}

bool Absent(const Json* value) { return value == nullptr || value->is_null(); }

Result<std::optional<double>> ReadDouble(const Json& json, std::string_view field, double least,
                                         double most, std::string_view range) {
  if (Absent(json.Find(field))) return std::optional<double>();
  KVASIR_TRY(const double value, json.GetDouble(field));
  if (!(value >= least && value <= most)) return Corrupt(field, range);
  return std::optional<double>(value);
}

// -1 is what some write for "off", which is 0.
Result<std::optional<int64_t>> ReadTopK(const Json& json) {
  if (Absent(json.Find("top_k"))) return std::optional<int64_t>();
  KVASIR_TRY(const int64_t value, json.GetInt("top_k"));
  if (value < -1) return Corrupt("top_k", "must be at least 0");
  return std::optional<int64_t>(std::max<int64_t>(value, 0));
}

}  // namespace

Result<std::vector<Token>> ReadTokenIds(const Json& json, std::string_view field) {
  const Json* value = json.Find(field);
  std::vector<Token> ids;
  if (Absent(value)) return ids;
  if (!value->is_array()) {
    KVASIR_TRY(const Token id, ReadId(*value, field));
    ids.push_back(id);
    return ids;
  }
  if (value->as_array().size() > kMaxTokenIds) return Corrupt(field, "lists more than 1024 ids");
  for (const Json& element : value->as_array()) {
    KVASIR_TRY(const Token id, ReadId(element, field));
    ids.push_back(id);
  }
  return ids;
}

Result<std::optional<Token>> ReadTokenId(const Json& json, std::string_view field) {
  const Json* value = json.Find(field);
  // What some write for "none".
  if (!Absent(value) && *value == Json(int64_t{-1})) return std::optional<Token>();
  KVASIR_TRY(const std::vector<Token> ids, ReadTokenIds(json, field));
  if (ids.empty()) return std::optional<Token>();
  return std::optional<Token>(ids.front());
}

Result<GenerationConfig> GenerationConfig::Parse(const Json& json) {
  if (!json.is_object()) return {ErrorCode::kCorrupt, "must be a JSON object"};
  GenerationConfig config;
  KVASIR_TRY(config.eos_token_ids, ReadTokenIds(json, "eos_token_id"));
  KVASIR_TRY(config.bos_token_id, ReadTokenId(json, "bos_token_id"));
  KVASIR_TRY(config.pad_token_id, ReadTokenId(json, "pad_token_id"));
  KVASIR_TRY(config.suppress_tokens, ReadTokenIds(json, "suppress_tokens"));
  constexpr double kMost = std::numeric_limits<double>::max();
  KVASIR_TRY(config.temperature,
             ReadDouble(json, "temperature", 0, kMost, "must be finite and at least 0"));
  KVASIR_TRY(config.top_k, ReadTopK(json));
  KVASIR_TRY(config.top_p, ReadDouble(json, "top_p", 0, 1, "must be between 0 and 1"));
  KVASIR_TRY(config.min_p, ReadDouble(json, "min_p", 0, 1, "must be between 0 and 1"));
  KVASIR_TRY(config.repetition_penalty,
             ReadDouble(json, "repetition_penalty", std::numeric_limits<double>::min(), 100,
                        "must be above 0 and at most 100"));
  if (!Absent(json.Find("do_sample"))) {
    KVASIR_TRY(config.do_sample, json.GetBool("do_sample"));
  }
  return config;
}

}  // namespace kvasir
