// GrammarAutomaton: runs a grammar byte by byte. A state is a set of places in the program, each
// with its ways back to calling rules (a graph-structured stack, Tomita 1986, whose nodes are kept
// once by content); states and transitions are made when first asked for and remembered.
// Deliberately no tokens and no history: GrammarMasks and GrammarMatcher hold those.
#ifndef KVASIR_GRAMMAR_GRAMMAR_AUTOMATON_H_
#define KVASIR_GRAMMAR_GRAMMAR_AUTOMATON_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kvasir/grammar/frame_sets.h"
#include "kvasir/grammar/grammar.h"

namespace kvasir {

// THREADS: one caller at a time.
class GrammarAutomaton {
 public:
  using State = uint32_t;
  static constexpr State kDead = 0;  // no text goes on from here
  static constexpr State kUnknown = 0xFFFFFFFF;

  // Calls nest no deeper than this; whatever would need more is not allowed, early enough that
  // every state that is not dead can still be finished. Below the limit of Json::Parse.
  static constexpr int kMaxDepth = 96;

  // Of an instruction in a counted repetition a state has places in at most so many copies. There
  // are more where such repetitions are nested and a text can be read in as many ways; then some
  // texts are not allowed that the grammar has, and a step stays cheap.
  static constexpr size_t kMaxCopies = 256;

  // A step takes no more than so many places and four for each instruction of the grammar: texts
  // that could be read in more ways are not allowed from there on.
  static constexpr size_t kMostWork = size_t{1} << 16;

  explicit GrammarAutomaton(std::shared_ptr<const Grammar> grammar);

  State start() const { return start_; }
  // One way on from a state; bytes that the grammar does not tell apart go the same.
  struct Edge {
    State next = kUnknown;
    uint32_t work = 0;  // what finding `next` took, in places, whoever had it done
  };
  // The state after one more byte. Amortized one look-up.
  State Next(State state, uint8_t byte) { return Follow(state, byte).next; }
  // Valid until the next call.
  const Edge& Follow(State state, uint8_t byte) {
    const Edge& edge = edges_[EdgeOf(state, byte)];
    return edge.next != kUnknown ? edge : Step(state, byte);
  }
  // The number of an edge, below edge_count(), until Forget.
  size_t EdgeOf(State state, uint8_t byte) const {
    return size_t{state} * class_count_ + program().class_of[byte];
  }
  size_t edge_count() const { return edges_.size(); }
  size_t place_count(State state) const { return states_.Get(state).size(); }
  // The text may end here.
  bool CanEnd(State state) const { return can_end_[state]; }

  const GrammarProgram& program() const { return grammar_->program(); }

  // What all states take.
  size_t size_bytes() const {
    return states_.size_bytes() + nodes_.size_bytes() + edges_.size() * sizeof(Edge);
  }
  // Forgets every state but the first and those in `keep`, which get new numbers in place.
  void Forget(std::span<State> keep);
  // Counts calls of Forget: numbers of states from before mean nothing.
  uint64_t generation() const { return generation_; }

 private:
  struct PendingCall {
    int32_t rank;
    int32_t rule;
    GrammarFrame way_back;
  };

  const Edge& Step(State state, uint8_t byte);
  void Reset();
  // The state of everything reachable from `places` before the next byte. Clears `places`.
  State Close(std::vector<GrammarFrame>* places);
  void Drain(std::vector<GrammarFrame>* places, bool follow_ways_back);
  // Of sorted frames, as kMaxCopies says.
  void DropCopies(std::vector<GrammarFrame>* frames);
  void EnterCalls(std::vector<GrammarFrame>* places);
  void AddCall(const GrammarInstruction& call, uint32_t ways_back);
  uint32_t InternNode(std::span<const GrammarFrame> frames);
  State InternState(std::span<const GrammarFrame> frames);

  // A set of frames that empties in constant time.
  class Seen {
   public:
    void Clear();
    bool Insert(const GrammarFrame& frame);

   private:
    struct Slot {
      GrammarFrame frame;
      uint64_t round = 0;
    };
    void Grow();
    std::vector<Slot> slots_ = std::vector<Slot>(256);
    size_t count_ = 0;
    uint64_t round_ = 1;
  };

  std::shared_ptr<const Grammar> grammar_;
  size_t class_count_;
  uint64_t generation_ = 0;
  State start_ = kDead;

  FrameSets states_;
  FrameSets nodes_;             // sets of ways back; a node names only nodes made before it
  std::vector<int32_t> depth_;  // per node: nested calls below it
  std::vector<Edge> edges_;     // [states, byte classes]
  std::vector<bool> can_end_;

  size_t work_ = 0;       // of the Close that runs
  size_t most_work_ = 0;  // then it gives up
  // Scratch of Close.
  Seen seen_;
  std::vector<GrammarFrame> places_;
  std::vector<GrammarFrame> found_;
  std::vector<GrammarFrame> ways_back_;
  std::vector<PendingCall> calls_;  // a heap, least rank on top
  std::vector<uint32_t> copies_;    // per origin, 0 between calls
};

}  // namespace kvasir

#endif  // KVASIR_GRAMMAR_GRAMMAR_AUTOMATON_H_
