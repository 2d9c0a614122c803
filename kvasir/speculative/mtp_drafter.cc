#include "kvasir/speculative/mtp_drafter.h"

#include <utility>

namespace kvasir {

bool MtpDrafter::CanDraft(const DraftRequest& request) const {
  return static_cast<int64_t>(request.hidden.size()) == parts_.assistant->target_hidden_size() &&
         request.target != nullptr && request.target->position() == request.known.size() - 1 &&
         parts_.assistant->CanRead(*request.target);
}

std::vector<std::vector<Token>> MtpDrafter::Propose(std::span<const DraftRequest> requests) {
  std::vector<std::vector<Token>> drafts(requests.size());
  std::vector<size_t> open;  // requests that go on
  std::vector<AssistantQuery> queries;
  for (size_t i = 0; i < requests.size(); ++i) {
    const DraftRequest& request = requests[i];
    if (!CanDraft(request)) continue;
    const int64_t last = request.known.size() - 1;
    open.push_back(i);
    queries.push_back({.cache = request.target,
                       .position = position_ == MtpPosition::kNext ? last : last - 1,
                       .token = request.known[last],
                       .state = request.hidden});
  }
  while (!open.empty()) {
    const auto out = parts_.assistant->Forward(*parts_.target, queries, workspace_);
    std::vector<size_t> next_open;
    std::vector<AssistantQuery> next;
    for (size_t row = 0; row < open.size(); ++row) {
      const DraftRequest& request = requests[open[row]];
      std::vector<Token>& drafted = drafts[open[row]];
      const TokenHistory history = {request.known.prompt, request.known.answer, drafted};
      const auto at = static_cast<int64_t>(row);
      drafted.push_back(
          sampler_.Sample({out.logits.row(at), static_cast<size_t>(parts_.sampleable_tokens)},
                          *request.sampling, static_cast<Position>(history.size()), history));
      if (static_cast<int64_t>(drafted.size()) >= request.max_drafts) continue;
      next_open.push_back(open[row]);
      next.push_back({.cache = queries[row].cache,
                      .position = queries[row].position,
                      .token = drafted.back(),
                      .state = {out.states.row(at), static_cast<size_t>(out.states.cols)}});
    }
    open = std::move(next_open);
    queries = std::move(next);
  }
  return drafts;
}

}  // namespace kvasir
