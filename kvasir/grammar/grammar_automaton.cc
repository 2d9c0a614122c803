#include "kvasir/grammar/grammar_automaton.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kvasir/base/check.h"

namespace kvasir {
namespace {

using Op = GrammarInstruction::Op;

// The node whose only way back is the end of the text.
constexpr uint32_t kBottom = 0;
constexpr GrammarFrame kEndOfText = {GrammarProgram::kFinalPc, kBottom};

}  // namespace

void GrammarAutomaton::Seen::Clear() {
  ++round_;
  count_ = 0;
}

bool GrammarAutomaton::Seen::Insert(const GrammarFrame& frame) {
  if (count_ * 2 >= slots_.size()) Grow();
  const uint64_t key =
      (static_cast<uint64_t>(frame.ways_back) << 32) | static_cast<uint32_t>(frame.pc);
  size_t at = (key * 0x9E3779B97F4A7C15) >> 20;
  for (;; ++at) {
    Slot& slot = slots_[at & (slots_.size() - 1)];
    if (slot.round != round_) {
      slot = {frame, round_};
      ++count_;
      return true;
    }
    if (slot.frame == frame) return false;
  }
}

void GrammarAutomaton::Seen::Grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  count_ = 0;
  for (const Slot& slot : old) {
    if (slot.round == round_) Insert(slot.frame);
  }
}

GrammarAutomaton::GrammarAutomaton(std::shared_ptr<const Grammar> grammar)
    : grammar_(std::move(grammar)),
      class_count_(static_cast<size_t>(grammar_->program().class_count)) {
  Reset();
}

void GrammarAutomaton::Reset() {
  states_.Clear();
  nodes_.Clear();
  depth_.clear();
  edges_.clear();
  can_end_.clear();
  InternState({});  // kDead
  std::fill(edges_.begin(), edges_.end(), Edge{kDead, 0});
  InternNode({&kEndOfText, 1});
  const auto& root = program().rules[static_cast<size_t>(program().root)];
  places_ = {{root.start, kBottom}};
  most_work_ = kMostWork + 4 * program().code.size();
  start_ = Close(&places_);
}

void GrammarAutomaton::Forget(std::span<State> keep) {
  ++generation_;
  const FrameSets old_nodes = std::exchange(nodes_, {});
  const FrameSets old_states = std::exchange(states_, {});
  Reset();
  // Nodes name only earlier nodes, so marking downwards and copying upwards both need one pass.
  std::vector<bool> wanted(old_nodes.size(), false);
  for (const State state : keep) {
    for (const GrammarFrame& frame : old_states.Get(state)) wanted[frame.ways_back] = true;
  }
  for (uint32_t id = old_nodes.size(); id-- > 0;) {
    if (!wanted[id]) continue;
    for (const GrammarFrame& frame : old_nodes.Get(id)) wanted[frame.ways_back] = true;
  }
  std::vector<uint32_t> new_node(old_nodes.size(), kBottom);
  const auto translated = [&](std::span<const GrammarFrame> frames) {
    ways_back_.assign(frames.begin(), frames.end());
    for (GrammarFrame& frame : ways_back_) frame.ways_back = new_node[frame.ways_back];
    std::sort(ways_back_.begin(), ways_back_.end());
    return std::span<const GrammarFrame>(ways_back_);
  };
  for (uint32_t id = 1; id < old_nodes.size(); ++id) {
    if (wanted[id]) new_node[id] = InternNode(translated(old_nodes.Get(id)));
  }
  for (State& state : keep) state = InternState(translated(old_states.Get(state)));
}

const GrammarAutomaton::Edge& GrammarAutomaton::Step(State state, uint8_t byte) {
  places_.clear();
  for (const GrammarFrame& frame : states_.Get(state)) {
    const GrammarInstruction& instruction = program().code[static_cast<size_t>(frame.pc)];
    if (instruction.op == Op::kByte && instruction.low <= byte && byte <= instruction.high) {
      places_.push_back({instruction.next, frame.ways_back});
    }
  }
  const State next = Close(&places_);
  constexpr size_t kMost = std::numeric_limits<uint32_t>::max();
  Edge& edge = edges_[EdgeOf(state, byte)];
  edge = {next, static_cast<uint32_t>(std::min(work_, kMost))};
  return edge;
}

GrammarAutomaton::State GrammarAutomaton::Close(std::vector<GrammarFrame>* places) {
  work_ = 0;
  seen_.Clear();
  found_.clear();
  calls_.clear();
  Drain(places, true);
  EnterCalls(places);
  if (work_ > most_work_) return kDead;
  std::sort(found_.begin(), found_.end());
  DropCopies(&found_);
  return InternState(found_);
}

// Calls are entered in ascending rank: when a rule's turn comes, all its callers at this byte are
// known, so one node holds all its ways back. A called rule that matches nothing was already
// stepped over where it was called, so its end need not be followed before a byte was read.
void GrammarAutomaton::EnterCalls(std::vector<GrammarFrame>* places) {
  const auto greater = [](const PendingCall& a, const PendingCall& b) { return a.rank > b.rank; };
  while (!calls_.empty() && work_ <= most_work_) {
    const int32_t rule = calls_.front().rule;
    ways_back_.clear();
    while (!calls_.empty() && calls_.front().rule == rule) {
      std::pop_heap(calls_.begin(), calls_.end(), greater);
      ways_back_.push_back(calls_.back().way_back);
      calls_.pop_back();
    }
    std::sort(ways_back_.begin(), ways_back_.end());
    ways_back_.erase(std::unique(ways_back_.begin(), ways_back_.end()), ways_back_.end());
    DropCopies(&ways_back_);
    places->push_back({program().rules[static_cast<size_t>(rule)].start, InternNode(ways_back_)});
    Drain(places, false);
  }
}

// Of the copies of one instruction those that leave most to come: they are compiled last.
void GrammarAutomaton::DropCopies(std::vector<GrammarFrame>* frames) {
  if (frames->size() <= kMaxCopies) return;
  copies_.resize(static_cast<size_t>(program().origin_count));
  const auto count_of = [this](const GrammarFrame& frame) -> uint32_t& {
    return copies_[static_cast<size_t>(program().origin[static_cast<size_t>(frame.pc)])];
  };
  size_t kept = frames->size();
  for (size_t i = frames->size(); i-- > 0;) {
    const GrammarFrame frame = (*frames)[i];
    if (program().is_copied[static_cast<size_t>(frame.pc)] && ++count_of(frame) > kMaxCopies) {
      continue;
    }
    (*frames)[--kept] = frame;
  }
  for (const GrammarFrame& frame : *frames) count_of(frame) = 0;
  frames->erase(frames->begin(), frames->begin() + static_cast<std::ptrdiff_t>(kept));
}

void GrammarAutomaton::Drain(std::vector<GrammarFrame>* places, bool follow_ways_back) {
  while (!places->empty()) {
    const GrammarFrame place = places->back();
    places->pop_back();
    if (++work_ > most_work_) return places->clear();
    const int32_t need = program().need[static_cast<size_t>(place.pc)];
    if (depth_[place.ways_back] + need > kMaxDepth || !seen_.Insert(place)) continue;
    const GrammarInstruction& instruction = program().code[static_cast<size_t>(place.pc)];
    switch (instruction.op) {
      case Op::kByte:
      case Op::kFinal:
        found_.push_back(place);
        break;
      case Op::kSplit:
        places->push_back({instruction.other, place.ways_back});
        places->push_back({instruction.next, place.ways_back});
        break;
      case Op::kAccept:
        if (follow_ways_back) {
          const auto frames = nodes_.Get(place.ways_back);
          places->insert(places->end(), frames.begin(), frames.end());
        }
        break;
      case Op::kCall:
        AddCall(instruction, place.ways_back);
        if (program().rules[static_cast<size_t>(instruction.other)].matches_empty) {
          places->push_back({instruction.next, place.ways_back});
        }
        break;
      case Op::kFail:
        break;
    }
  }
}

void GrammarAutomaton::AddCall(const GrammarInstruction& call, uint32_t ways_back) {
  const auto& rule = program().rules[static_cast<size_t>(call.other)];
  const auto greater = [](const PendingCall& a, const PendingCall& b) { return a.rank > b.rank; };
  const auto add = [&](const GrammarFrame& way_back) {
    calls_.push_back({rule.rank, call.other, way_back});
    std::push_heap(calls_.begin(), calls_.end(), greater);
  };
  if (!program().IsTailCall(call)) return add({call.next, ways_back});
  // Called from several places in one rule, it goes back the same ways.
  if (!seen_.Insert({-1 - call.other, ways_back})) return;
  const auto frames = nodes_.Get(ways_back);
  work_ += frames.size();
  if (work_ > most_work_) return;
  for (const GrammarFrame& frame : frames) add(frame);
}

uint32_t GrammarAutomaton::InternNode(std::span<const GrammarFrame> frames) {
  const uint32_t node = nodes_.Intern(frames);
  if (node < depth_.size()) return node;
  int32_t depth = 0;
  for (const GrammarFrame& frame : frames) {
    if (frame != kEndOfText) depth = std::max(depth, depth_[frame.ways_back] + 1);
  }
  depth_.push_back(depth);
  return node;
}

GrammarAutomaton::State GrammarAutomaton::InternState(std::span<const GrammarFrame> frames) {
  const State state = states_.Intern(frames);
  if (state < can_end_.size()) return state;
  can_end_.push_back(std::ranges::any_of(
      frames, [](const GrammarFrame& frame) { return frame.pc == GrammarProgram::kFinalPc; }));
  edges_.resize(edges_.size() + class_count_);
  return state;
}

}  // namespace kvasir
