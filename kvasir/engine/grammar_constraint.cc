#include "kvasir/engine/grammar_constraint.h"

#include <limits>
#include <utility>

#include "kvasir/base/check.h"

namespace kvasir {
namespace {

constexpr float kForbidden = -std::numeric_limits<float>::infinity();

// For each byte of `text`: how much of its beginning the text ends with there.
std::vector<size_t> Fallbacks(const std::string& text) {
  std::vector<size_t> fallbacks(text.size(), 0);
  for (size_t i = 1; i < text.size(); ++i) {
    size_t size = fallbacks[i - 1];
    while (size > 0 && text[i] != text[size]) size = fallbacks[size - 1];
    fallbacks[i] = size + (text[i] == text[size] ? 1 : 0);
  }
  return fallbacks;
}

}  // namespace

GrammarConstraintSource::GrammarConstraintSource(std::shared_ptr<GrammarMasks> masks,
                                                 std::vector<FreeText> before)
    : masks_(std::move(masks)), before_(std::move(before)) {
  for (const FreeText& text : before_) {
    KVASIR_CHECK(!text.until.empty());
    fallbacks_.push_back(Fallbacks(text.until));
  }
}

std::unique_ptr<TokenConstraint> GrammarConstraintSource::Begin() const {
  return std::make_unique<GrammarConstraint>(this);
}

size_t GrammarConstraintSource::MatchedAfter(size_t text, size_t matched, char byte) const {
  const std::string& until = before_[text].until;
  while (matched > 0 && until[matched] != byte) matched = fallbacks_[text][matched - 1];
  return until[matched] == byte ? matched + 1 : 0;
}

GrammarConstraint::GrammarConstraint(const GrammarConstraintSource* source)
    : source_(source), masks_(source->masks_) {
  Place begin;
  if (IsInGrammar(begin)) {
    matcher_.emplace(masks_.get());
  } else {
    begin.is_open = !source->before_.front().opener.has_value();
  }
  places_.push_back(begin);
}

void GrammarConstraint::Mask(std::span<float> logits) {
  const Place& place = places_.back();
  if (place.is_free) return;
  if (place.is_open) return MaskAt(place.text, logits);
  // What may come without the opener, and the opener.
  const auto opener = static_cast<size_t>(*source_->before_[place.text].opener);
  const float kept = opener < logits.size() ? logits[opener] : 0;
  MaskAt(place.text + 1, logits);
  if (opener < logits.size()) logits[opener] = kept;
}

void GrammarConstraint::MaskAt(size_t text, std::span<float> logits) {
  if (text == source_->before_.size()) {
    if (matcher_) return matcher_->Mask().Apply(logits);
    return GrammarMatcher(masks_.get()).Mask().Apply(logits);
  }
  if (source_->before_[text].may_end) return;
  for (const Token token : masks_->vocabulary().end_tokens()) {
    if (static_cast<size_t>(token) < logits.size()) {
      logits[static_cast<size_t>(token)] = kForbidden;
    }
  }
}

bool GrammarConstraint::Accept(Token token) {
  Place place = places_.back();
  if (place.has_ended) return false;
  if (place.is_open || place.is_free) return AcceptAt(place, token);
  place.is_open = true;
  if (token == *source_->before_[place.text].opener) {
    places_.push_back(place);
    return true;
  }
  ++place.text;
  if (IsInGrammar(place)) matcher_.emplace(masks_.get());
  if (AcceptAt(place, token)) return true;
  matcher_.reset();
  return false;
}

bool GrammarConstraint::AcceptAt(Place place, Token token) {
  if (place.is_free || !IsInGrammar(place)) return AcceptFree(place, token);
  if (!matcher_->Accept(token)) return false;
  ++place.in_grammar;
  places_.push_back(place);
  return true;
}

bool GrammarConstraint::AcceptFree(Place place, Token token) {
  const GrammarVocabulary& vocabulary = masks_->vocabulary();
  if (vocabulary.IsEnd(token)) {
    place.has_ended = true;
    if (!place.is_free && !source_->before_[place.text].may_end) return false;
  }
  std::string_view bytes = vocabulary.bytes(token);
  while (!place.is_free && !IsInGrammar(place) && !bytes.empty()) {
    place.matched = source_->MatchedAfter(place.text, place.matched, bytes.front());
    bytes.remove_prefix(1);
    if (place.matched < source_->before_[place.text].until.size()) continue;
    ++place.text;
    place.matched = 0;
  }
  if (!place.is_free && IsInGrammar(place)) {
    const bool is_allowed = masks_->Advance(masks_->start(), bytes) != GrammarAutomaton::kDead;
    if (is_allowed) {
      matcher_.emplace(masks_.get(), std::string(bytes));
    } else {
      place.is_free = true;
    }
  }
  places_.push_back(place);
  return true;
}

void GrammarConstraint::Rollback(size_t count) {
  KVASIR_CHECK(count < places_.size());
  const size_t before = places_.back().in_grammar;
  places_.resize(places_.size() - count);
  const Place& place = places_.back();
  const bool is_in_grammar = !place.is_free && place.is_open && IsInGrammar(place);
  if (is_in_grammar && matcher_) {
    matcher_->Rollback(before - place.in_grammar);
  } else {
    matcher_.reset();
  }
}

bool GrammarConstraint::IsComplete() {
  const Place& place = places_.back();
  return place.has_ended || (!place.is_free && IsInGrammar(place) && matcher_->MustEnd());
}

}  // namespace kvasir
