// GenerationConfig: what a checkpoint's generation_config.json recommends.
// Deliberately only recommendations: a request overrides each, and absent means absent.
#ifndef KVASIR_FORMATS_GENERATION_CONFIG_H_
#define KVASIR_FORMATS_GENERATION_CONFIG_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/base/token.h"

namespace kvasir {

struct GenerationConfig {
  std::vector<Token> eos_token_ids;  // empty: not given
  std::optional<Token> bos_token_id;
  std::optional<Token> pad_token_id;
  std::vector<Token> suppress_tokens;  // must never be chosen
  std::optional<bool> do_sample;       // false: greedy is recommended
  std::optional<double> temperature;
  std::optional<int64_t> top_k;
  std::optional<double> top_p;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;

  // Fields of other names are ignored. ERRORS: kCorrupt, naming the field.
  static Result<GenerationConfig> Parse(const Json& json);
};

// A field that holds one token id or a list of them; absent and null give an empty list.
// ERRORS: kCorrupt, naming the field.
Result<std::vector<Token>> ReadTokenIds(const Json& json, std::string_view field);
// A field that holds one token id; absent and null give nothing, of a list the first is taken.
// ERRORS: kCorrupt, naming the field.
Result<std::optional<Token>> ReadTokenId(const Json& json, std::string_view field);

}  // namespace kvasir

#endif  // KVASIR_FORMATS_GENERATION_CONFIG_H_
