#include "kvasir/speculative/ngram_drafter.h"

#include <algorithm>
#include <string>

namespace kvasir {
namespace {

// The known tokens in one piece.
struct NgramState final : DraftState {
  std::vector<Token> tokens;
};

}  // namespace

Status NgramOptions::Validate() const {
  if (1 <= min_match && min_match <= max_match) return {};
  return {ErrorCode::kInvalidArgument, "n-gram drafts: a match of " + std::to_string(min_match) +
                                           " to " + std::to_string(max_match) +
                                           " tokens; the first must be at least 1 and not larger"};
}

std::vector<Token> DraftFromRepetition(std::span<const Token> known, const NgramOptions& options,
                                       int64_t max_drafts) {
  const auto size = static_cast<int64_t>(known.size());
  const auto at = [known](int64_t i) { return known[static_cast<size_t>(i)]; };
  int64_t best_end = 0;
  int64_t best_length = options.min_match - 1;
  for (int64_t end = size - 1; end > best_length && best_length < options.max_match; --end) {
    // Whoever is longer agrees where the best one so far ends too.
    if (at(end - 1) != at(size - 1) || at(end - 1 - best_length) != at(size - 1 - best_length)) {
      continue;
    }
    int64_t length = 1;
    while (length < std::min(options.max_match, end) &&
           at(end - 1 - length) == at(size - 1 - length)) {
      ++length;
    }
    if (length <= best_length) continue;
    best_length = length;
    best_end = end;
  }
  if (best_end == 0) return {};
  const auto tail = known.subspan(static_cast<size_t>(best_end));
  return {tail.begin(), tail.begin() + std::min(max_drafts, size - best_end)};
}

std::unique_ptr<DraftState> NgramDrafter::NewState() { return std::make_unique<NgramState>(); }

std::vector<std::vector<Token>> NgramDrafter::Propose(std::span<const DraftRequest> requests) {
  std::vector<std::vector<Token>> proposals;
  for (const DraftRequest& request : requests) {
    std::vector<Token>& tokens = static_cast<NgramState*>(request.state)->tokens;
    const std::vector<Token> fresh =
        request.known.Copy(static_cast<int64_t>(tokens.size()), request.known.size());
    tokens.insert(tokens.end(), fresh.begin(), fresh.end());
    std::vector<Token> drafts;
    if (tree_ != nullptr) drafts = tree_->Continuation(request.salt, tokens, request.max_drafts);
    if (drafts.empty()) drafts = DraftFromRepetition(tokens, options_, request.max_drafts);
    proposals.push_back(std::move(drafts));
  }
  return proposals;
}

}  // namespace kvasir
