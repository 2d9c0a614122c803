// CandidatePool's filters over weights. Deliberately apart from the selection of logits, which
// makes the list that these shorten.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kvasir/base/check.h"
#include "kvasir/sampling/candidate_pool.h"
#include "kvasir/sampling/exact_math.h"

namespace kvasir {
namespace {

constexpr double kOne = 0x1p40;  // the weight of the likeliest
constexpr double kLn2 = 0x1.62e42fefa39efp-1;
// Of the histogram over e^0 to e^-29: a stretch of 151,936 logits is then some hundred of them.
constexpr size_t kBins = 1024;

}  // namespace

// Keeps the fewest candidates, by ascending (key, id), that weigh `wanted` together. A histogram of
// mass over the keys finds the stretch that holds the boundary; only that stretch is then searched.
// Integer sums make the result that of sorting everything.
template <typename Key>
void CandidatePool::KeepHead(uint64_t wanted, double first_key, double bins_per_key,
                             const Key& key) {
  const auto bin_of = [&](const Candidate& candidate) {
    const double bin = (key(candidate) - first_key) * bins_per_key;
    return bin < kBins - 1 ? static_cast<size_t>(bin) : kBins - 1;
  };
  std::array<uint64_t, kBins> masses = {};
  for (const Candidate& candidate : candidates_) masses[bin_of(candidate)] += candidate.weight;
  size_t boundary_bin = 0;
  uint64_t kept = 0;
  while (kept + masses[boundary_bin] < wanted) kept += masses[boundary_bin++];

  ranked_.clear();
  for (const Candidate& candidate : candidates_) {
    if (bin_of(candidate) == boundary_bin) {
      ranked_.push_back({key(candidate), candidate.token, candidate.weight});
    }
  }
  const Ranked last = LastKept(wanted - kept);
  std::erase_if(candidates_, [&](const Candidate& other) {
    return Before(last, {key(other), other.token, other.weight});
  });
}

CandidatePool::Ranked CandidatePool::LastKept(uint64_t wanted) {
  // Halving: the answer lies in [low, high), everything before low is kept. Linear on average.
  size_t low = 0;
  size_t high = ranked_.size();
  uint64_t kept = 0;
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    const auto begin = ranked_.begin();
    std::nth_element(begin + static_cast<ptrdiff_t>(low), begin + static_cast<ptrdiff_t>(middle),
                     begin + static_cast<ptrdiff_t>(high), Before);
    uint64_t mass = 0;
    for (size_t i = low; i < middle; ++i) mass += ranked_[i].weight;
    if (kept + mass >= wanted) {
      high = middle;
    } else {
      kept += mass;
      low = middle;
    }
  }
  return ranked_[low];
}

// Weights stay what they are while the likeliest stays; the total does not.
void CandidatePool::AfterCut() {
  const float largest_before = max_logit_;
  is_max_known_ = false;
  if (max_logit() != largest_before) has_weights_ = false;
  total_ = 0;
  for (const Candidate& candidate : candidates_) total_ += candidate.weight;
}

void CandidatePool::KeepTopP(double top_p) {
  EnsureWeights();
  // Bounded, so that 0 times it is never NaN however low the temperature.
  const double bins_per_logit =
      std::min(kBins / (kNegligible * temperature_), std::numeric_limits<double>::max());
  const auto wanted =
      std::min(total_, static_cast<uint64_t>(std::ceil(top_p * static_cast<double>(total_))));
  KeepHead(wanted, -static_cast<double>(max_logit()), bins_per_logit,
           [](const Candidate& candidate) { return -static_cast<double>(candidate.logit); });
  AfterCut();
}

void CandidatePool::KeepTypical(double typical_p) {
  EnsureWeights();
  // |-ln p - H| without logarithms: both sides contain the log of the total.
  const double largest = max_logit();
  const double mean = MeanDistance();
  const auto wanted =
      std::min(total_, static_cast<uint64_t>(typical_p * static_cast<double>(total_)) + 1);
  KeepHead(wanted, 0.0, kBins / kNegligible, [&](const Candidate& candidate) {
    return std::fabs((largest - candidate.logit) / temperature_ - mean);
  });
  AfterCut();
}

void CandidatePool::KeepMinP(double min_p) {
  EnsureWeights();
  const double least = min_p * kOne;
  std::erase_if(candidates_, [&](const Candidate& candidate) {
    return static_cast<double>(candidate.weight) < least;
  });
  AfterCut();
}

void CandidatePool::KeepSurpriseUpTo(double bits) {
  if (bits < 0.0) return KeepTopK(1);
  EnsureWeights();
  const double least = static_cast<double>(total_) * ExactExp(-bits * kLn2);
  if (least > kOne) return KeepTopK(1);
  std::erase_if(candidates_, [&](const Candidate& candidate) {
    return static_cast<double>(candidate.weight) < least;
  });
  AfterCut();
}

void CandidatePool::ExcludeTopChoices(double threshold) {
  EnsureWeights();
  const double least = threshold * static_cast<double>(total_);
  const auto is_top = [&](const Candidate& candidate) {
    return candidate.weight > 0 && static_cast<double>(candidate.weight) >= least;
  };
  const Candidate* last = nullptr;
  for (const Candidate& candidate : candidates_) {
    if (is_top(candidate) && (last == nullptr || Likelier(*last, candidate))) last = &candidate;
  }
  if (last == nullptr) return;
  const Candidate kept = *last;
  std::erase_if(candidates_, [&](const Candidate& candidate) {
    return is_top(candidate) && candidate.token != kept.token;
  });
  AfterCut();
}

double CandidatePool::MeanDistance() {
  EnsureWeights();
  const double largest = max_logit();
  double sum = 0.0;
  for (const Candidate& candidate : candidates_) {
    // At temperatures near 0 a distance is infinite where the weight is 0.
    if (candidate.weight == 0) continue;
    sum += static_cast<double>(candidate.weight) * ((largest - candidate.logit) / temperature_);
  }
  return sum / static_cast<double>(total_);
}

double CandidatePool::Entropy() {
  const double mean = MeanDistance();
  return mean + ExactLog(static_cast<double>(total_) / kOne);
}

uint64_t CandidatePool::TotalWeight() {
  EnsureWeights();
  return total_;
}

uint64_t CandidatePool::WeightOf(Token token) {
  EnsureWeights();
  const auto found = std::lower_bound(candidates_.begin(), candidates_.end(), token,
                                      [](const Candidate& a, Token id) { return a.token < id; });
  return found != candidates_.end() && found->token == token ? found->weight : 0;
}

std::vector<double> CandidatePool::LargestLogits(size_t count) {
  std::vector<Candidate> largest(std::min(count, candidates_.size()));
  std::partial_sort_copy(candidates_.begin(), candidates_.end(), largest.begin(), largest.end(),
                         Likelier);
  std::vector<double> logits;
  for (const Candidate& candidate : largest) logits.push_back(candidate.logit / temperature_);
  return logits;
}

std::span<const Candidate> CandidatePool::Weighted() {
  EnsureWeights();
  return candidates_;
}

Token CandidatePool::Draw(double uniform) {
  EnsureWeights();
  // The likeliest token has weight 2^40 and is never cut, so the total is positive.
  uint64_t rest =
      std::min(total_ - 1, static_cast<uint64_t>(uniform * static_cast<double>(total_)));
  for (const Candidate& candidate : candidates_) {
    if (rest < candidate.weight) return candidate.token;
    rest -= candidate.weight;
  }
  KVASIR_CHECK(false);
}

}  // namespace kvasir
