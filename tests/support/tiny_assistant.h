// A tiny recorded assistant with its target, ready to draft.
// Deliberately as TinyModel: what cannot be read fails loudly.
#ifndef KVASIR_TESTS_SUPPORT_TINY_ASSISTANT_H_
#define KVASIR_TESTS_SUPPORT_TINY_ASSISTANT_H_

#include <memory>
#include <string>
#include <vector>

#include "kvasir/speculative/mtp_drafter.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_policies.h"

namespace kvasir {

// Under testdata/assistants.
inline constexpr const char* kTinyAssistants[] = {"gemma4_shared_ordered",
                                                  "gemma4_one_projection_plain"};

inline std::vector<Token> TokensIn(const Json& array) {
  std::vector<Token> tokens;
  for (const Json& token : array.as_array()) tokens.push_back(static_cast<Token>(token.as_int()));
  return tokens;
}

class TinyAssistant {
 public:
  explicit TinyAssistant(const std::string& name)
      : folder_(Folder(name)),
        target_({.folder = TargetOf(name), .weights = kExact}),
        assistant_(ValueOrDie(LoadAssistant(folder_, target_.config(), target_.backend(),
                                            {.weight_format = kExact, .log = {}}))) {}

  static std::string Folder(const std::string& name) {
    return std::string(KVASIR_SOURCE_DIR) + "/testdata/assistants/" + name;
  }
  // The checkpoint of testdata/models that it was recorded with.
  static std::string TargetOf(const std::string& name) {
    return ValueOrDie(
        ValueOrDie(Json::ParseFile(Folder(name) + "/golden.json")).GetString("target"));
  }

  const std::string& folder() const { return folder_; }
  TinyModel& target() { return target_; }
  const AssistantModel& assistant() const { return *assistant_.model; }
  std::unique_ptr<Drafter> NewDrafter(MtpPosition position = MtpPosition::kNext) const {
    return std::make_unique<MtpDrafter>(
        MtpDrafterParts{assistant_.model.get(), &target_.model(), target_.model().vocab_size()},
        position);
  }

 private:
  // As in the recordings.
  static constexpr WeightFormat kExact = WeightFormat::kF32;

  const std::string folder_;
  TinyModel target_;
  const LoadedAssistant assistant_;
};

inline constexpr const char* kTinyShared = "transformers_gemma4_shared_bf16";

// Ways to store what an assistant reads.
inline std::vector<TinyPolicy> AssistantPolicies() {
  constexpr const char* kBudget = "budget:128,keep=4,recent=64,interval=64,score=knorm";
  return {
      {"shared_f32", kTinyShared, "f32", "f32"},
      {"shared_f16", kTinyShared, "f16", "f16"},
      {"shared_turbo", kTinyShared, "turbo3", "turbo4"},
      {"shared_turbo_recent", kTinyShared, "turbo4", "turbo4", "", 64, 64},
      {"shared_knorm", kTinyShared, "turbo4", "turbo4", kBudget, 0, 64},
      {"from_value_f32", kTinyFromValue, "f32", "f32"},
      {"from_value_turbo", kTinyFromValue, "turbo4", "turbo4"},
      {"from_value_knorm", kTinyFromValue, "f16", "f16", kBudget},
  };
}

}  // namespace kvasir

#endif  // KVASIR_TESTS_SUPPORT_TINY_ASSISTANT_H_
