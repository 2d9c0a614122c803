#include "kvasir/speculative/ngram_drafter.h"

#include <algorithm>

namespace kvasir {
namespace {

struct NgramState final : DraftState {
  explicit NgramState(NgramOptions options) : index(options) {}

  NgramIndex index;
  int64_t matched = 0;    // of the last proposal
  bool is_known = false;  // it is what others continued with
};

}  // namespace

std::unique_ptr<DraftState> NgramDrafter::NewState() {
  return std::make_unique<NgramState>(options_);
}

std::vector<std::vector<Token>> NgramDrafter::Propose(std::span<const DraftRequest> requests) {
  std::vector<std::vector<Token>> proposals;
  proposals.reserve(requests.size());
  for (const DraftRequest& request : requests) {
    auto& state = static_cast<NgramState&>(*request.state);
    NgramIndex& index = state.index;
    for (auto at = static_cast<int64_t>(index.tokens().size()); at < request.known.size(); ++at) {
      index.Append(request.known[at]);
    }
    std::vector<Token> drafts;
    if (tree_ != nullptr) {
      drafts = tree_->Continuation(request.salt, index.tokens(), request.max_drafts);
    }
    state.is_known = !drafts.empty();
    if (drafts.empty()) {
      const NgramIndex::Match match = index.Find();
      state.matched = match.length;
      if (match.end > 0) drafts = index.Continue(match, request.max_drafts);
    }
    proposals.push_back(std::move(drafts));
  }
  return proposals;
}

int NgramDrafter::Sureness(const DraftState& base, int64_t index) const {
  const auto& state = static_cast<const NgramState&>(base);
  if (state.is_known) return 0;
  const int64_t matched = state.matched + index;
  int kind = 1;
  for (const int64_t longest : {2, 3, 4, 6, 9, 15}) kind += matched > longest;
  return std::min(kind, kSurenessKinds - 1);
}

}  // namespace kvasir
