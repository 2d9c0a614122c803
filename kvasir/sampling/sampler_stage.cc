#include "kvasir/sampling/sampler_stage.h"

#include <array>
#include <string>

namespace kvasir {
namespace {

constexpr std::array kDefault = {
    SamplerStage::kPenalties,   SamplerStage::kDry,  SamplerStage::kTopNSigma,
    SamplerStage::kTemperature, SamplerStage::kTopK, SamplerStage::kTypicalP,
    SamplerStage::kTopP,        SamplerStage::kMinP, SamplerStage::kXtc};

// One letter per stage of kDefault.
constexpr std::string_view kLetters = "edstkypmx";

}  // namespace

std::span<const SamplerStage> DefaultStages() { return kDefault; }

std::string_view SamplerStageName(SamplerStage stage) {
  switch (stage) {
    case SamplerStage::kPenalties:
      return "penalties";
    case SamplerStage::kDry:
      return "dry";
    case SamplerStage::kTopNSigma:
      return "top_n_sigma";
    case SamplerStage::kTemperature:
      return "temperature";
    case SamplerStage::kTopK:
      return "top_k";
    case SamplerStage::kTypicalP:
      return "typ_p";
    case SamplerStage::kTopP:
      return "top_p";
    case SamplerStage::kMinP:
      return "min_p";
    case SamplerStage::kXtc:
      return "xtc";
  }
  return "";
}

Result<SamplerStage> SamplerStageFromName(std::string_view name) {
  if (name == "typical_p") return SamplerStage::kTypicalP;
  if (name == "temp") return SamplerStage::kTemperature;
  if (name.size() == 1 && kLetters.find(name[0]) != std::string_view::npos) {
    return kDefault[kLetters.find(name[0])];
  }
  std::string names;
  for (const SamplerStage stage : kDefault) {
    if (name == SamplerStageName(stage)) return stage;
    names += (names.empty() ? "" : ", ") + std::string(SamplerStageName(stage));
  }
  return {ErrorCode::kInvalidArgument, "must have names among " + names};
}

}  // namespace kvasir
