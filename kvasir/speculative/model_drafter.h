// ModelDrafter: a small model with its own cache guesses what the large one will say (Leviathan et
// al. 2023). Deliberately without the acceptance rule: it draws each draft as the target will, with
// the same options and the same random number, so that equal distributions give equal tokens.
#ifndef KVASIR_SPECULATIVE_MODEL_DRAFTER_H_
#define KVASIR_SPECULATIVE_MODEL_DRAFTER_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "kvasir/base/log.h"
#include "kvasir/kv/prefix_tree.h"
#include "kvasir/model/model.h"
#include "kvasir/sampling/sampler.h"
#include "kvasir/speculative/drafter.h"

namespace kvasir {

struct DraftModelParts {
  const Model* model = nullptr;
  KvPool* pool = nullptr;  // the drafter's alone
  std::shared_ptr<const KvCacheSpec> spec;
  int64_t sampleable_tokens = 0;  // ids that the target may choose; at most the model's vocabulary
  // What the prefix tree of ended sequences may take beside blocks.
  size_t max_index_bytes = std::numeric_limits<size_t>::max();
};

struct ModelDrafterOptions {
  // Tokens that a pass reads at most, over all sequences: what a prompt may hold up others by, and
  // what bounds the activations. Who finds no place in it gets no drafts in this step.
  int64_t step_tokens = 256;
  // Missing tokens that a guess reads on the way, beside the last known one: those that were
  // drafted last and kept, and a few plain steps' tokens. Longer runs wait for Follow.
  int64_t inline_tokens = 8;
  LogSink log;  // says once that its pool was too small for an answer
};

// Where its pool is full it first forgets what ended sequences left, then gives up drafting for
// those that do not fit.
class ModelDrafter final : public Drafter {
 public:
  // Model and pool outlive the drafter, and the drafter its states.
  // ERRORS: kInvalidArgument from KvCacheSpec::Validate, or if options or parts are out of range.
  static Result<std::unique_ptr<ModelDrafter>> Create(DraftModelParts parts,
                                                      ModelDrafterOptions options = {});

  std::string_view kind() const override { return "model"; }
  std::unique_ptr<DraftState> NewState() override;
  std::optional<int64_t> MissingTokens(const DraftRequest& request) override;
  void Follow(std::span<const DraftRequest> requests) override;
  std::vector<std::vector<Token>> Propose(std::span<const DraftRequest> requests) override;
  void Finish(DraftState& state, KnownTokens known, uint64_t salt) override;

 private:
  struct State;
  // One sequence that a pass of the draft model takes on.
  struct Member {
    State* state = nullptr;
    std::vector<Token> tokens;  // to read
    bool wants_logits = false;
  };

  ModelDrafter(DraftModelParts parts, ModelDrafterOptions options);

  void Align(const DraftRequest& request);
  void KeepAgreed(State& state);
  bool HasCaughtUp(const DraftRequest& request);
  // Runs the members that fit; the others' states are given up and their members cleared. The
  // logits of those that want them, in order.
  std::optional<ConstFloatRows> Forward(std::vector<Member>& members);
  void WarnOfMemory();

  const DraftModelParts parts_;
  const ModelDrafterOptions options_;
  PrefixTree tree_;
  Workspace workspace_;
  Sampler sampler_;
  bool has_warned_ = false;
};

}  // namespace kvasir

#endif  // KVASIR_SPECULATIVE_MODEL_DRAFTER_H_
