#include "kvasir/formats/generation_config.h"

#include <cmath>
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

Result<std::optional<double>> ReadDouble(const Json& json, std::string_view field) {
  if (Absent(json.Find(field))) return std::optional<double>();
  KVASIR_TRY(const double value, json.GetDouble(field));
  if (!std::isfinite(value)) return Corrupt(field, "must be finite");
  return std::optional<double>(value);
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
  KVASIR_TRY(config.temperature, ReadDouble(json, "temperature"));
  KVASIR_TRY(config.top_p, ReadDouble(json, "top_p"));
  KVASIR_TRY(config.min_p, ReadDouble(json, "min_p"));
  KVASIR_TRY(config.repetition_penalty, ReadDouble(json, "repetition_penalty"));
  if (!Absent(json.Find("top_k"))) {
    KVASIR_TRY(config.top_k, json.GetInt("top_k"));
  }
  if (!Absent(json.Find("do_sample"))) {
    KVASIR_TRY(config.do_sample, json.GetBool("do_sample"));
  }
  return config;
}

}  // namespace kvasir
