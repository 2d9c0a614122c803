// The options of speculative decoding, and how they become a DraftSource.
// Deliberately with llama-server's names where they mean the same.
#ifndef KVASIR_CLI_DRAFT_FLAGS_H_
#define KVASIR_CLI_DRAFT_FLAGS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "kvasir/cli/flags.h"
#include "kvasir/cli/model_flags.h"
#include "kvasir/engine/draft_source.h"

namespace kvasir {

struct DraftFlags {
  std::string model;
  std::string kind;  // empty: model if there is one, here or in the model's package, else none
  std::string cache_bytes = "0";
  std::optional<int64_t> given_max_drafts;

  int64_t MaxDrafts() const { return given_max_drafts.value_or(16); }

  void Declare(Flags& flags);
  // Before the target is loaded: what of its cache is the draft model's.
  // ERRORS: kInvalidArgument for values out of range or that do not fit each other.
  Status Prepare(ModelFlags& target) const;
  // Loads the draft model, if there is one, as `target_flags` load the target.
  // ERRORS: as DraftSource::Load.
  Result<std::unique_ptr<DraftSource>> Load(const ModelFlags& target_flags,
                                            const ModelBundle& target) const;

 private:
  struct Choice {
    DraftKind kind = DraftKind::kNone;
    std::string model;  // empty: the kind needs none
  };
  Result<DraftKind> Kind() const;  // of the flags alone
  // What --draft-model names, or the target's package; empty: none.
  Result<std::string> Model(const std::string& target) const;
  Result<Choice> Choose(const std::string& target) const;
};

}  // namespace kvasir

#endif  // KVASIR_CLI_DRAFT_FLAGS_H_
