#include "kvasir/sampling/sampling_fields.h"

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvasir {
namespace {

// The strings of an optional array, nullptr when there is none.
Result<const Json::Array*> FindStrings(const Json& body, std::string_view field) {
  const Json* value = body.Find(field);
  if (value == nullptr || value->is_null()) return static_cast<const Json::Array*>(nullptr);
  bool is_good = value->is_array();
  if (is_good) {
    for (const Json& entry : value->as_array()) is_good = is_good && entry.is_string();
  }
  if (is_good) return &value->as_array();
  return {ErrorCode::kCorrupt, "field '" + std::string(field) + "' must be an array of strings"};
}

Status ReadBreakers(const Json& body, DryOptions* dry) {
  KVASIR_TRY(const Json::Array* texts, FindStrings(body, "dry_sequence_breakers"));
  if (texts == nullptr) return {};
  if (texts->size() > kMaxDryBreakers) {
    return {ErrorCode::kInvalidArgument, "field 'dry_sequence_breakers' must have at most " +
                                             std::to_string(kMaxDryBreakers) + " strings"};
  }
  dry->breakers.clear();
  for (const Json& text : *texts) dry->breakers.push_back(text.as_string());
  return {};
}

// An array of names, or a string of letters.
Result<std::vector<std::string>> ReadStageNames(const Json& body, bool* is_given) {
  std::vector<std::string> names;
  const Json* value = body.Find("samplers");
  *is_given = value != nullptr && !value->is_null();
  if (!*is_given) return names;
  if (value->is_string()) {
    for (const char letter : value->as_string()) names.emplace_back(1, letter);
    return names;
  }
  KVASIR_TRY(const Json::Array* strings, FindStrings(body, "samplers"));
  for (const Json& name : *strings) names.push_back(name.as_string());
  return names;
}

Status ReadStages(const Json& body, SamplingOptions* options) {
  bool is_given = false;
  KVASIR_TRY(const std::vector<std::string> names, ReadStageNames(body, &is_given));
  if (!is_given) return {};
  options->stages.clear();
  for (const std::string& name : names) {
    const Result<SamplerStage> stage = SamplerStageFromName(name);
    if (!stage.ok()) return {stage.error().code, "field 'samplers' " + stage.error().message};
    options->stages.push_back(*stage);
    // More would be one of them twice, which Validate refuses: no need to keep a long list.
    if (options->stages.size() > DefaultStages().size()) break;
  }
  return {};
}

}  // namespace

Status ReadSamplingFields(const Json& body, SamplingOptions* options) {
  const std::pair<std::string_view, double*> doubles[] = {
      {"typical_p", &options->typical_p},
      {"top_n_sigma", &options->top_n_sigma},
      {"dynatemp_range", &options->dynamic_temperature.range},
      {"dynatemp_exponent", &options->dynamic_temperature.exponent},
      {"xtc_probability", &options->xtc.probability},
      {"xtc_threshold", &options->xtc.threshold},
      {"dry_multiplier", &options->dry.multiplier},
      {"dry_base", &options->dry.base},
      {"mirostat_tau", &options->mirostat.tau},
      {"mirostat_eta", &options->mirostat.eta},
  };
  const std::pair<std::string_view, int64_t*> integers[] = {
      {"repeat_last_n", &options->repeat_last_n},
      {"dry_allowed_length", &options->dry.allowed_length},
      {"dry_penalty_last_n", &options->dry.last_n},
      {"mirostat", &options->mirostat.version},
  };
  for (const auto& [field, value] : doubles) {
    KVASIR_TRY(*value, body.GetDoubleOr(field, *value));
  }
  for (const auto& [field, value] : integers) {
    KVASIR_TRY(*value, body.GetIntOr(field, *value));
  }
  // llama-server's clients write -1 for "off".
  if (options->top_n_sigma < 0.0) options->top_n_sigma = 0.0;
  KVASIR_TRY_OK(ReadBreakers(body, &options->dry));
  return ReadStages(body, options);
}

}  // namespace kvasir
