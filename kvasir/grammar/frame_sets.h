// FrameSets: sets of (instruction, way back) pairs, each kept once and known by a dense id.
// Deliberately never forgets one set: Clear drops them all.
#ifndef KVASIR_GRAMMAR_FRAME_SETS_H_
#define KVASIR_GRAMMAR_FRAME_SETS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace kvasir {

// A place in the program and the set of places to go on at when its rule ends.
struct GrammarFrame {
  int32_t pc = 0;
  uint32_t ways_back = 0;
  friend auto operator<=>(const GrammarFrame&, const GrammarFrame&) = default;
};

class FrameSets {
 public:
  FrameSets() { Clear(); }

  // The id of an equal set, or the next id. REQUIRES: sorted, unique.
  uint32_t Intern(std::span<const GrammarFrame> frames);
  std::span<const GrammarFrame> Get(uint32_t id) const {
    return std::span(frames_).subspan(begins_[id], begins_[id + 1] - begins_[id]);
  }
  uint32_t size() const { return static_cast<uint32_t>(begins_.size()) - 1; }
  size_t size_bytes() const {
    return frames_.size() * sizeof(GrammarFrame) + begins_.size() * sizeof(size_t) +
           slots_.size() * sizeof(uint32_t);
  }
  void Clear();

 private:
  static constexpr uint32_t kFree = 0xFFFFFFFF;

  size_t SlotOf(std::span<const GrammarFrame> frames) const;
  void Grow();

  std::vector<GrammarFrame> frames_;
  std::vector<size_t> begins_;   // of set i in frames_; one more than there are sets
  std::vector<uint32_t> slots_;  // open addressing, a power of two
};

}  // namespace kvasir

#endif  // KVASIR_GRAMMAR_FRAME_SETS_H_
