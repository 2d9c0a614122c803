// OrderedHead: logits of the tokens whose clusters look likeliest, instead of the whole
// vocabulary's ("ordered embeddings" of Gemma 4's small assistants).
// Deliberately for guesses only: a token of any other cluster gets -infinity.
#ifndef KVASIR_MODEL_ORDERED_HEAD_H_
#define KVASIR_MODEL_ORDERED_HEAD_H_

#include <memory>
#include <vector>

#include "kvasir/formats/assistant_config.h"
#include "kvasir/model/weight_source.h"
#include "kvasir/model/workspace.h"

namespace kvasir {

class OrderedHead {
 public:
  // REQUIRES: config.has_ordered_head. ERRORS: as WeightSource; kCorrupt for an order that names
  // what is no token.
  static Result<OrderedHead> Load(const AssistantConfig& config, WeightSource& source);

  // hidden: [rows, hidden_size]; logits: [rows, vocab_size].
  void Run(Backend& backend, Workspace& workspace, ConstFloatRows hidden, FloatRows logits) const;

  template <typename Visit>
  void ForEachMatrix(const Visit& visit) const {
    visit(*centroids_);
    for (const auto& cluster : clusters_) visit(*cluster);
  }

 private:
  int64_t looked_ = 0;                                         // clusters per row
  std::vector<int64_t> order_;                                 // tokens, cluster by cluster
  std::unique_ptr<const WeightMatrix> centroids_;              // [clusters, hidden_size]
  std::vector<std::unique_ptr<const WeightMatrix>> clusters_;  // [tokens of one, hidden_size]
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_ORDERED_HEAD_H_
