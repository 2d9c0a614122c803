#include "kvasir/sampling/draft_verdict.h"

#include <algorithm>
#include <vector>

#include "kvasir/base/rng.h"

namespace kvasir {
namespace {

// Of UniformDouble: the sampler has 0 and 1.
constexpr uint64_t kAcceptStream = 2;
constexpr uint64_t kResidualStream = 3;

double DraftProbability(const DrawnDraft& draft, Token token) {
  if (draft.distribution != nullptr) return draft.distribution->Of(token);
  return token == draft.token ? 1.0 : 0.0;
}

}  // namespace

DraftVerdict VerifyDraft(const TokenDistribution& target, const DrawnDraft& draft, uint64_t seed,
                         Position position) {
  const auto counter = static_cast<uint64_t>(position);
  const double accept = UniformDouble(seed, counter, kAcceptStream);
  // u < p / q without a division by 0. A draft that its own distribution cannot give is refused.
  const double q = DraftProbability(draft, draft.token);
  if (q > 0.0 && accept * q < target.Of(draft.token)) return {true, draft.token};

  std::vector<double> residual;
  double total = 0.0;
  for (const TokenDistribution::Entry& entry : target.entries()) {
    const double rest = target.Of(entry.token) - DraftProbability(draft, entry.token);
    total += residual.emplace_back(std::max(rest, 0.0));
  }
  const double uniform = UniformDouble(seed, counter, kResidualStream);
  double rest = uniform * total;
  Token last = target.Draw(uniform);  // stays when both are equal and rounding refused the draft
  for (size_t i = 0; i < residual.size(); ++i) {
    if (residual[i] == 0.0) continue;
    last = target.entries()[i].token;
    if (rest < residual[i]) break;
    rest -= residual[i];
  }
  return {false, last};
}

}  // namespace kvasir
