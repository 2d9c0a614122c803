#include "kvasir/sampling/token_distribution.h"

#include <algorithm>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/sampling/exact_math.h"

namespace kvasir {

TokenDistribution::TokenDistribution(std::vector<Entry> entries) : entries_(std::move(entries)) {
  for (const Entry& entry : entries_) total_ += entry.weight;
  KVASIR_CHECK(total_ > 0);
}

double TokenDistribution::Of(Token token) const {
  const auto found = std::lower_bound(entries_.begin(), entries_.end(), token,
                                      [](const Entry& a, Token id) { return a.token < id; });
  if (found == entries_.end() || found->token != token) return 0.0;
  return static_cast<double>(found->weight) / static_cast<double>(total_);
}

Token TokenDistribution::Draw(double uniform) const {
  uint64_t rest =
      std::min(total_ - 1, static_cast<uint64_t>(uniform * static_cast<double>(total_)));
  for (const Entry& entry : entries_) {
    if (rest < entry.weight) return entry.token;
    rest -= entry.weight;
  }
  KVASIR_CHECK(false);
}

std::vector<TokenLogprob> TokenDistribution::Top(int64_t count) const {
  const auto wanted =
      static_cast<size_t>(std::clamp<int64_t>(count, 0, static_cast<int64_t>(entries_.size())));
  std::vector<Entry> top(wanted);
  std::partial_sort_copy(entries_.begin(), entries_.end(), top.begin(), top.end(),
                         [](const Entry& a, const Entry& b) {
                           return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
                         });
  const double log_total = ExactLog(static_cast<double>(total_));
  std::vector<TokenLogprob> logprobs;
  for (const Entry& entry : top) {
    logprobs.push_back({entry.token, ExactLog(static_cast<double>(entry.weight)) - log_total});
  }
  return logprobs;
}

}  // namespace kvasir
