#include "kvasir/grammar/frame_sets.h"

#include <algorithm>

namespace kvasir {
namespace {

uint64_t Hash(std::span<const GrammarFrame> frames) {
  uint64_t hash = frames.size();
  for (const GrammarFrame& frame : frames) {
    hash ^= (static_cast<uint64_t>(static_cast<uint32_t>(frame.pc)) << 32) | frame.ways_back;
    hash *= 0x9E3779B97F4A7C15;  // 2^64 / golden ratio: spreads low bits upwards
    hash ^= hash >> 29;
  }
  return hash;
}

}  // namespace

void FrameSets::Clear() {
  frames_.clear();
  begins_.assign(1, 0);
  slots_.assign(64, kFree);
}

size_t FrameSets::SlotOf(std::span<const GrammarFrame> frames) const {
  size_t slot = Hash(frames) & (slots_.size() - 1);
  while (slots_[slot] != kFree && !std::ranges::equal(Get(slots_[slot]), frames)) {
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slot;
}

uint32_t FrameSets::Intern(std::span<const GrammarFrame> frames) {
  const size_t slot = SlotOf(frames);
  if (slots_[slot] != kFree) return slots_[slot];
  const uint32_t id = size();
  slots_[slot] = id;
  frames_.insert(frames_.end(), frames.begin(), frames.end());
  begins_.push_back(frames_.size());
  if (size_t{size()} * 2 > slots_.size()) Grow();
  return id;
}

void FrameSets::Grow() {
  slots_.assign(slots_.size() * 2, kFree);
  for (uint32_t id = 0; id < size(); ++id) slots_[SlotOf(Get(id))] = id;
}

}  // namespace kvasir
