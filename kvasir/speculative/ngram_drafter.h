// NgramDrafter: what followed the last time that the sequence, or another one, said the same
// (prompt look-up decoding, Saxena 2023). Costs no forward pass.
// Deliberately without counts and tables: a scan of 100,000 tokens takes microseconds.
#ifndef KVASIR_SPECULATIVE_NGRAM_DRAFTER_H_
#define KVASIR_SPECULATIVE_NGRAM_DRAFTER_H_

#include <memory>
#include <string_view>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/kv/prefix_tree.h"
#include "kvasir/speculative/drafter.h"

namespace kvasir {

struct NgramOptions {
  int64_t min_match = 2;   // tokens that must be the same
  int64_t max_match = 16;  // more are not compared; of equal matches the latest counts

  // ERRORS: kInvalidArgument unless 1 <= min_match <= max_match.
  Status Validate() const;
};

// The tokens behind the longest earlier occurrence of the last tokens of `known`; of equally long
// ones the latest. At most `max_drafts`, fewer at the end, none without a match.
std::vector<Token> DraftFromRepetition(std::span<const Token> known, const NgramOptions& options,
                                       int64_t max_drafts);

class NgramDrafter final : public Drafter {
 public:
  // With a tree, what others continued the very same tokens with comes first: a question that was
  // answered before. REQUIRES: options.Validate() is OK; the tree outlives the drafter.
  explicit NgramDrafter(NgramOptions options = {}, const PrefixTree* tree = nullptr)
      : options_(options), tree_(tree) {}

  std::string_view kind() const override { return "ngram"; }
  std::unique_ptr<DraftState> NewState() override;
  std::vector<std::vector<Token>> Propose(std::span<const DraftRequest> requests) override;

 private:
  const NgramOptions options_;
  const PrefixTree* const tree_;
};

}  // namespace kvasir

#endif  // KVASIR_SPECULATIVE_NGRAM_DRAFTER_H_
