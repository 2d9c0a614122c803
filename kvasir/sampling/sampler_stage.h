// SamplerStage: one step of the chain that turns logits into a distribution, and its name.
// Deliberately without logit bias and mirostat: the one always comes first, the other replaces
// every filter.
#ifndef KVASIR_SAMPLING_SAMPLER_STAGE_H_
#define KVASIR_SAMPLING_SAMPLER_STAGE_H_

#include <span>
#include <string_view>

#include "kvasir/base/result.h"

namespace kvasir {

enum class SamplerStage {
  kPenalties,
  kDry,
  kTopNSigma,
  kTemperature,
  kTopK,
  kTypicalP,
  kTopP,
  kMinP,
  kXtc,
};

// All of them, in the order that holds unless a request says otherwise.
std::span<const SamplerStage> DefaultStages();

// llama-server's names: "penalties", "dry", "top_n_sigma", "temperature", "top_k", "typ_p",
// "top_p", "min_p", "xtc".
std::string_view SamplerStageName(SamplerStage stage);
// Also takes "typical_p", "temp" and llama-server's letters, in the order above: e d s t k y p m x.
// ERRORS: kInvalidArgument, listing the names.
Result<SamplerStage> SamplerStageFromName(std::string_view name);

}  // namespace kvasir

#endif  // KVASIR_SAMPLING_SAMPLER_STAGE_H_
