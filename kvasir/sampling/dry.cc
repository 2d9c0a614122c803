#include "kvasir/sampling/dry.h"

#include <algorithm>
#include <limits>
#include <span>

#include "kvasir/sampling/dry_breakers.h"

namespace kvasir {
namespace {

// By squaring, so that the bits do not depend on a C library; infinity for large exponents.
double Power(double base, size_t exponent) {
  double power = 1.0;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) power *= base;
    base *= base;
  }
  return power;
}

}  // namespace

void Dry::Apply(const DryOptions& options, const TokenHistory& history, CandidatePool& pool) {
  const TokenHistory recent = history.Last(options.last_n);
  const auto least = static_cast<size_t>(options.allowed_length);
  if (recent.size() <= least) return;
  reversed_.clear();
  for (const std::span<const Token> part : {recent.prompt, recent.output, recent.drafts}) {
    reversed_.insert(reversed_.end(), part.begin(), part.end());
  }
  const DryBreakers none;
  const DryBreakers& breakers = history.breakers != nullptr ? *history.breakers : none;
  const size_t most = breakers.TailAfterLast(reversed_);
  if (most < least) return;
  std::reverse(reversed_.begin(), reversed_.end());
  Find(least, most);
  for (const Repetition& repetition : repetitions_) {
    if (breakers.IsSingle(repetition.next)) continue;
    const double loss = options.multiplier * Power(options.base, repetition.length - least);
    // Finite, so that a token can become very unlikely but not impossible.
    pool.Penalize(repetition.next, 1.0, std::min<double>(loss, std::numeric_limits<float>::max()));
  }
}

void Dry::Find(size_t least, size_t most) {
  // matches_[i]: how many tokens from i on equal those from 0 on (Gusfield 1997, section 1.4).
  const size_t size = reversed_.size();
  matches_.assign(size, 0);
  repetitions_.clear();
  size_t left = 0;
  size_t right = 0;
  for (size_t i = 1; i < size; ++i) {
    size_t length = i < right ? std::min(matches_[i - left], right - i) : 0;
    while (i + length < size && reversed_[length] == reversed_[i + length]) ++length;
    matches_[i] = length;
    if (i + length > right) {
      left = i;
      right = i + length;
    }
    const size_t repeated = std::min(length, most);
    // The token after an earlier occurrence comes before it in reverse.
    if (repeated >= least) repetitions_.push_back({reversed_[i - 1], repeated});
  }
  std::sort(repetitions_.begin(), repetitions_.end(), [](const Repetition& a, const Repetition& b) {
    return a.next != b.next ? a.next < b.next : a.length > b.length;
  });
  const auto same_token = [](const Repetition& a, const Repetition& b) { return a.next == b.next; };
  repetitions_.erase(std::unique(repetitions_.begin(), repetitions_.end(), same_token),
                     repetitions_.end());
}

}  // namespace kvasir
