// AssistantConfig: the shape of a Gemma 4 assistant, a drafter that reads its target's cache
// (Gemma4AssistantForCausalLM; docs/speculation.md, "Assistants").
// Deliberately without the target: whether the two fit is checked where both are known.
#ifndef KVASIR_FORMATS_ASSISTANT_CONFIG_H_
#define KVASIR_FORMATS_ASSISTANT_CONFIG_H_

#include <cstdint>
#include <string>

#include "kvasir/formats/model_config.h"

namespace kvasir {

struct AssistantConfig {
  ModelConfig text;  // no layer has keys and values of its own
  int64_t target_hidden_size = 0;
  // The head looks at the tokens of the likeliest clusters only ("ordered embeddings").
  bool has_ordered_head = false;
  int64_t clusters = 0;         // divides the vocabulary
  int64_t clusters_looked = 0;  // of them, per token

  // Whether a config.json is an assistant's.
  static bool Describes(const Json& config);
  static bool IsIn(const std::string& folder);  // false without a readable config.json

  // ERRORS: as ModelConfig::Load and Parse.
  static Result<AssistantConfig> Load(const std::string& folder);
  static Result<AssistantConfig> Parse(const Json& config);

  int64_t ParameterCount() const;
};

}  // namespace kvasir

#endif  // KVASIR_FORMATS_ASSISTANT_CONFIG_H_
