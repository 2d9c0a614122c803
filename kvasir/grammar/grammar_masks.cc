#include "kvasir/grammar/grammar_masks.h"

#include <algorithm>
#include <array>
#include <set>
#include <span>
#include <utility>

namespace kvasir {

GrammarMasks::GrammarMasks(std::shared_ptr<const Grammar> grammar,
                           std::shared_ptr<const GrammarVocabulary> vocabulary, size_t cache_bytes)
    : vocabulary_(std::move(vocabulary)),
      automaton_(std::move(grammar)),
      cache_bytes_(cache_bytes),
      forget_above_bytes_(cache_bytes) {
  path_.resize(
      std::max(vocabulary_->plain_trie().max_bytes(), vocabulary_->other_trie().max_bytes()) + 1);
  FindPlainBytes();
}

void GrammarMasks::FindPlainBytes() {
  std::set<std::array<int, kPlainStates + 1>> kinds;
  for (int byte = 255; byte >= 0; --byte) {
    std::array<int, kPlainStates + 1> kind{};
    bool plain = false;
    for (int i = 0; i < kPlainStates; ++i) {
      const auto next = NextPlain(static_cast<PlainState>(i), static_cast<uint8_t>(byte));
      kind[static_cast<size_t>(i)] = next.has_value() ? static_cast<int>(*next) : -1;
      plain = plain || next.has_value();
    }
    kind.back() = automaton_.program().class_of[static_cast<size_t>(byte)];
    if (plain && kinds.insert(kind).second) plain_bytes_.push_back(static_cast<uint8_t>(byte));
  }
}

GrammarMasks::State GrammarMasks::Advance(State state, std::string_view bytes) {
  for (const char c : bytes) {
    state = automaton_.Next(state, static_cast<uint8_t>(c));
    if (state == GrammarAutomaton::kDead) break;
  }
  return state;
}

void GrammarMasks::Forget(std::span<State> keep) {
  masks_.clear();
  counted_.clear();
  automaton_.Forget(keep);
  // What is kept may itself be large; forgetting must not happen at every step.
  forget_above_bytes_ = std::max(cache_bytes_, 2 * size_bytes());
}

void GrammarMasks::KeepWithinBudget(State* state) {
  if (size_bytes() > forget_above_bytes_) Forget({state, 1});
}

const TokenMask& GrammarMasks::Mask(State* state) {
  KeepWithinBudget(state);
  if (const auto known = masks_.find(*state); known != masks_.end()) return known->second;
  TokenMask mask(vocabulary_->size());
  work_ = 0;
  ++mask_number_;
  path_[0] = *state;
  if (AllowsPlainText(*state)) {
    mask.Add(vocabulary_->plain());
  } else {
    work_ = 0;  // what that took must not cost the mask its tokens
    ++mask_number_;
    Walk(vocabulary_->plain_trie(), &mask);
  }
  Walk(vocabulary_->other_trie(), &mask);
  if (CanEnd(*state)) mask.Add(vocabulary_->end());
  return masks_.insert_or_assign(*state, std::move(mask)).first->second;
}

// Out of line: nearly all edges are cheap.
void GrammarMasks::CountEdge(State state, uint8_t byte, size_t work) {
  const size_t edge = automaton_.EdgeOf(state, byte);
  if (counted_.size() <= edge) counted_.resize(automaton_.edge_count());
  if (std::exchange(counted_[edge], mask_number_) != mask_number_) work_ += work;
}

// path_[0] is the state to begin in.
void GrammarMasks::Walk(const TokenTrie& trie, TokenMask* mask) {
  const std::span<const TokenTrie::Node> nodes = trie.nodes();
  const auto end = static_cast<uint32_t>(trie.node_count());
  for (uint32_t i = 0; i < end;) {
    const TokenTrie::Node& node = nodes[i];
    // First bytes are looked at even then, so that the text can go on.
    if (work_ > kMostWork && (node.depth > 0 || work_ > kMostWorkOfFirstBytes)) {
      i = node.subtree_end;
      continue;
    }
    const GrammarAutomaton::Edge edge = automaton_.Follow(path_[node.depth], node.byte);
    if (edge.work > kCheapWork) CountEdge(path_[node.depth], node.byte, edge.work);
    if (edge.next == GrammarAutomaton::kDead) {
      i = node.subtree_end;
      continue;
    }
    for (uint32_t at = node.tokens_begin; at < nodes[i + 1].tokens_begin; ++at) {
      mask->Set(trie.tokens()[at]);
    }
    path_[size_t{node.depth} + 1] = edge.next;
    ++i;
  }
}

// Runs the grammar beside all plain texts at once, in order of their length, so that a pair is
// first met with the fewest characters. In most states some first byte is refused at once.
bool GrammarMasks::AllowsPlainText(State state) {
  struct Pair {
    State state;
    PlainState plain;
    int characters;
  };
  // A string whose length is bounded has a state per character and kind of lead byte.
  constexpr size_t kMaxPairs = 16 * kPlainStates * 2;
  std::vector<Pair> pairs = {{state, PlainState::kBoundary, 0}};
  std::set<std::pair<State, PlainState>> seen = {{state, PlainState::kBoundary}};
  for (size_t i = 0; i < pairs.size(); ++i) {
    const Pair pair = pairs[i];
    if (pair.characters == GrammarVocabulary::kMaxPlainCharacters) continue;
    for (const uint8_t byte : plain_bytes_) {
      const auto plain = NextPlain(pair.plain, byte);
      if (!plain.has_value()) continue;
      const auto [next, work] = automaton_.Follow(pair.state, byte);
      if (work > kCheapWork) CountEdge(pair.state, byte, work);
      if (next == GrammarAutomaton::kDead || work_ > kMostWork) return false;
      if (!seen.insert({next, *plain}).second) continue;
      if (pairs.size() == kMaxPairs) return false;
      pairs.push_back({next, *plain, pair.characters + (*plain == PlainState::kBoundary ? 1 : 0)});
    }
  }
  return true;
}

}  // namespace kvasir
