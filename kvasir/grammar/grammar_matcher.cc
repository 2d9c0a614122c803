#include "kvasir/grammar/grammar_matcher.h"

#include <utility>

#include "kvasir/base/check.h"

namespace kvasir {

GrammarMatcher::GrammarMatcher(GrammarMasks* masks, std::string begun)
    : masks_(masks), begun_(std::move(begun)), none_(masks->vocabulary().size()) {}

GrammarMasks::State GrammarMatcher::Current() {
  size_t known = steps_.size();
  while (known > 0 && steps_[known - 1].generation != masks_->generation()) --known;
  GrammarMasks::State state =
      known > 0 ? steps_[known - 1].state : masks_->Advance(masks_->start(), begun_);
  for (; known < steps_.size(); ++known) {
    masks_->KeepWithinBudget(&state);
    Step& step = steps_[known];
    state = masks_->Advance(state, masks_->vocabulary().bytes(step.token));
    step.state = state;
    step.generation = masks_->generation();
  }
  return state;
}

void GrammarMatcher::Remember(GrammarMasks::State state) {
  if (steps_.empty()) return;
  steps_.back().state = state;
  steps_.back().generation = masks_->generation();
}

const TokenMask& GrammarMatcher::Mask() {
  if (ended_) return none_;
  GrammarMasks::State state = Current();
  const TokenMask& mask = masks_->Mask(&state);
  Remember(state);
  return mask;
}

bool GrammarMatcher::Accept(Token token) {
  if (ended_) return false;
  GrammarMasks::State state = Current();
  if (masks_->vocabulary().IsEnd(token)) {
    if (!masks_->CanEnd(state)) return false;
    ended_ = true;
  } else {
    const std::string_view bytes = masks_->vocabulary().bytes(token);
    if (bytes.empty()) return false;
    masks_->KeepWithinBudget(&state);
    Remember(state);
    state = masks_->Advance(state, bytes);
    if (state == GrammarAutomaton::kDead) return false;
  }
  steps_.push_back({token, state, masks_->generation()});
  return true;
}

void GrammarMatcher::Rollback(size_t count) {
  KVASIR_CHECK(count <= steps_.size());
  if (count > 0) ended_ = false;
  steps_.resize(steps_.size() - count);
}

bool GrammarMatcher::MustEnd() {
  return ended_ || (CanEnd() && Mask() == masks_->vocabulary().end());
}

bool GrammarMatcher::CanEnd() { return ended_ || masks_->CanEnd(Current()); }

}  // namespace kvasir
