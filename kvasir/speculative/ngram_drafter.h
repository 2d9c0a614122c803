// NgramDrafter: what followed the last time that the sequence, or another one, said the same
// (prompt look-up decoding, Saxena 2023). Costs no forward pass.
// Deliberately without counts: one earlier occurrence is all it goes by.
#ifndef KVASIR_SPECULATIVE_NGRAM_DRAFTER_H_
#define KVASIR_SPECULATIVE_NGRAM_DRAFTER_H_

#include <memory>
#include <string_view>
#include <vector>

#include "kvasir/kv/prefix_tree.h"
#include "kvasir/speculative/drafter.h"
#include "kvasir/speculative/ngram_index.h"

namespace kvasir {

class NgramDrafter final : public Drafter {
 public:
  // With a tree, what others continued the very same tokens with comes first: a question that was
  // answered before. REQUIRES: options.Validate() is OK; the tree outlives the drafter.
  explicit NgramDrafter(NgramOptions options = {}, const PrefixTree* tree = nullptr)
      : options_(options), tree_(tree) {}

  std::string_view kind() const override { return "ngram"; }
  bool is_cheap() const override { return true; }
  std::unique_ptr<DraftState> NewState() override;
  std::vector<std::vector<Token>> Propose(std::span<const DraftRequest> requests) override;
  // By how many tokens were the same, those of earlier drafts included.
  int Sureness(const DraftState& state, int64_t index) const override;

 private:
  const NgramOptions options_;
  const PrefixTree* const tree_;
};

}  // namespace kvasir

#endif  // KVASIR_SPECULATIVE_NGRAM_DRAFTER_H_
