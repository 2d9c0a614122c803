// AssistantModel: Gemma 4's drafter for multi-token prediction. Its layers have only queries: they
// attend to what the last window layer and the last full layer of another model, the target, have
// cached (docs/speculation.md, "Assistants"; Gemma4AssistantForCausalLM of transformers).
// Deliberately no Model: it has no cache, and without a target it can say nothing.
#ifndef KVASIR_MODEL_ASSISTANT_MODEL_H_
#define KVASIR_MODEL_ASSISTANT_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "kvasir/formats/assistant_config.h"
#include "kvasir/model/decoder_layers.h"
#include "kvasir/model/model.h"
#include "kvasir/model/ordered_head.h"

namespace kvasir {

// One sequence's row of a pass.
struct AssistantQuery {
  const KvSequence* cache = nullptr;  // the target's; only read
  Position position = 0;              // that the queries are turned to
  Token token = 0;                    // the last one
  // The target's state behind its final norm before that token, or what the pass before it made
  // of one: [target_hidden_size].
  std::span<const float> state;
};

class AssistantModel {
 public:
  // OK if the assistant can read the target's cache. ERRORS: kInvalidArgument, naming what differs.
  static Status CheckTarget(const AssistantConfig& config, const ModelConfig& target);
  // `backend` must outlive the assistant. ERRORS: as CheckTarget and WeightSource.
  static Result<std::unique_ptr<const AssistantModel>> Load(const AssistantConfig& config,
                                                            const ModelConfig& target,
                                                            WeightSource& source, Backend& backend);

  int64_t vocab_size() const { return layers_->spec().vocab_size; }
  int64_t target_hidden_size() const { return target_hidden_; }
  size_t weight_bytes() const;
  int64_t parameters() const;

  // Whether every layer finds at least one row: not where a chunk or a window of one token begins.
  bool CanRead(const KvSequence& target) const;

  struct Output {
    ConstFloatRows logits;  // [queries, vocab_size]; -infinity where an ordered head did not look
    ConstFloatRows states;  // [queries, target_hidden_size], for the next pass
  };
  // One pass for all queries; what it returns lives in `workspace` until the next one. The bits of
  // a row depend on its own query only.
  // REQUIRES: CanRead, tokens of the target's vocabulary; `target` is the model whose caches these
  // are. THREADS: one call at a time per workspace and backend.
  Output Forward(const Model& target, std::span<const AssistantQuery> queries,
                 Workspace& workspace) const;

 private:
  explicit AssistantModel(Backend& backend) : backend_(backend) {}

  template <typename Visit>
  void ForEachMatrix(const Visit& visit) const {
    visit(*before_);
    visit(*after_);
    if (head_ != nullptr) visit(*head_);
    if (ordered_head_) ordered_head_->ForEachMatrix(visit);
    layers_->ForEachMatrix(visit);
  }

  Backend& backend_;
  int64_t target_hidden_ = 0;
  std::unique_ptr<const WeightMatrix> before_;  // [hidden_size, 2 * target_hidden_size]
  std::unique_ptr<const WeightMatrix> after_;   // [target_hidden_size, hidden_size]
  std::unique_ptr<const WeightMatrix> head_;    // null: ordered
  std::optional<OrderedHead> ordered_head_;
  std::unique_ptr<const DecoderLayers> layers_;
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_ASSISTANT_MODEL_H_
