// MtpDrafter: Gemma 4's assistant guesses from the target's own cache: a chain of passes of a few
// layers that only read it, each fed with the token and the state that the one before it made.
// Deliberately without a cache and without anything to catch up with: a sequence can be drafted for
// as soon as its last hidden state is known, and rolled back without telling anybody.
#ifndef KVASIR_SPECULATIVE_MTP_DRAFTER_H_
#define KVASIR_SPECULATIVE_MTP_DRAFTER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "kvasir/model/assistant_model.h"
#include "kvasir/sampling/sampler.h"
#include "kvasir/speculative/drafter.h"

namespace kvasir {

// Where all queries of a chain stand. Publications disagree by one; it changes how often drafts are
// right, never an answer. Both feed the last known token with the hidden state before it.
enum class MtpPosition {
  kNext,  // the position of the last known token, which the cache does not hold: transformers
  kRead,  // the last position that the cache holds: mlx-vlm, ollama
};

struct MtpDrafterParts {
  const AssistantModel* assistant = nullptr;
  const Model* target = nullptr;  // whose embeddings it uses and whose caches it reads
  int64_t sampleable_tokens = 0;  // ids that the target may choose; at most its vocabulary
};

class MtpDrafter final : public Drafter {
 public:
  // Assistant and target outlive the drafter. THREADS: Propose uses the assistant's backend.
  explicit MtpDrafter(MtpDrafterParts parts, MtpPosition position = MtpPosition::kNext)
      : parts_(parts), position_(position) {}

  std::string_view kind() const override { return "mtp"; }
  std::unique_ptr<DraftState> NewState() override { return std::make_unique<DraftState>(); }
  // Null without a hidden state, or where the cache has no row to read.
  std::optional<int64_t> MissingTokens(const DraftRequest& request) override {
    return CanDraft(request) ? std::optional<int64_t>(0) : std::nullopt;
  }
  // One pass per depth for all sequences side by side. Nothing where MissingTokens is null.
  std::vector<std::vector<Token>> Propose(std::span<const DraftRequest> requests) override;
  HiddenWanted hidden_wanted() const override { return HiddenWanted::kLast; }

 private:
  bool CanDraft(const DraftRequest& request) const;

  const MtpDrafterParts parts_;
  const MtpPosition position_;
  Workspace workspace_;
  Sampler sampler_;
};

}  // namespace kvasir

#endif  // KVASIR_SPECULATIVE_MTP_DRAFTER_H_
