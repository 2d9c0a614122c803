#include "kvasir/sampling/penalties.h"

#include <cstddef>
#include <span>

namespace kvasir {

void Penalties::Apply(const SamplingOptions& options, const TokenHistory& history,
                      int64_t vocabulary, CandidatePool& pool) {
  constexpr int32_t kDone = -1;
  const TokenHistory recent = history.Last(options.repeat_last_n);
  if (counts_.size() < static_cast<size_t>(vocabulary)) {
    counts_.resize(static_cast<size_t>(vocabulary), 0);
  }
  const auto for_each = [&](std::span<const Token> tokens, const auto& action) {
    for (const Token token : tokens) {
      if (token >= 0 && token < vocabulary) action(token, counts_[static_cast<size_t>(token)]);
    }
  };
  const auto count = [](Token, int32_t& counted) { ++counted; };
  const auto penalize = [&](Token token, int32_t& counted) {
    if (counted == kDone) return;
    const double loss =
        options.frequency_penalty * counted + (counted > 0 ? options.presence_penalty : 0.0);
    pool.Penalize(token, options.repetition_penalty, loss);
    counted = kDone;
  };
  const auto clear = [](Token, int32_t& counted) { counted = 0; };
  for_each(recent.output, count);
  for_each(recent.drafts, count);
  for (const std::span<const Token> part : {recent.output, recent.drafts, recent.prompt}) {
    for_each(part, penalize);
  }
  for (const std::span<const Token> part : {recent.output, recent.drafts, recent.prompt}) {
    for_each(part, clear);
  }
}

}  // namespace kvasir
