// Drafter: guesses how sequences go on, so that the target can verify several tokens in one step.
// Deliberately only guesses: what is accepted is decided by sampling from the target's logits with
// the random number of each position, so no draft, however bad, changes an answer.
#ifndef KVASIR_SPECULATIVE_DRAFTER_H_
#define KVASIR_SPECULATIVE_DRAFTER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "kvasir/base/token.h"
#include "kvasir/kv/kv_sequence.h"
#include "kvasir/sampling/sampling_options.h"
#include "kvasir/speculative/known_tokens.h"
#include "kvasir/tensor/float_rows.h"

namespace kvasir {

// Kinds of sureness that a drafter may tell apart.
inline constexpr int kSurenessKinds = 8;

// What a drafter remembers of one sequence, such as a cache of its own. Destroying it gives
// everything back.
class DraftState {
 public:
  virtual ~DraftState() = default;
};

// One sequence that wants drafts.
struct DraftRequest {
  DraftState* state = nullptr;  // of Drafter::NewState
  KnownTokens known;            // not empty; grows only, by what was accepted
  uint64_t salt = 0;            // what may be learnt from others: only from the same salt
  int64_t max_drafts = 0;       // at least 1
  // With the seed of this answer. A drafter that draws with the same random number per position
  // guesses right more often than one that takes the likeliest token.
  const SamplingOptions* sampling = nullptr;
  // The target's cache of known[0, size - 1): to read from, for drafters that do. The row of the
  // last known token is not written yet.
  const KvSequence* target = nullptr;
  // The target's hidden state behind its final norm at position size - 2, [hidden_size]; empty
  // unless the drafter wants hidden states and it is known.
  std::span<const float> hidden = {};
};

// What the target has read of one sequence, for good: drafts only where they were accepted.
struct DraftReport {
  DraftState* state = nullptr;  // of Drafter::NewState
  KnownTokens known;
  uint64_t salt = 0;  // as in DraftRequest
  Position begin = 0;
  ConstFloatRows hidden;  // of the tokens [begin, begin + rows), [rows, hidden_size]
};

enum class HiddenWanted {
  kNone,
  kLast,  // of the last token read: DraftRequest::hidden
  kAll,   // also of every other, as DraftReport; not of those that a cache hit spares the target
};

class Drafter {
 public:
  virtual ~Drafter() = default;

  // "ngram", "model", "mtp"
  virtual std::string_view kind() const = 0;
  virtual std::unique_ptr<DraftState> NewState() = 0;
  // For a sequence that goes on from where this one's stands: what it was told counts for both.
  virtual std::unique_ptr<DraftState> ForkState(const DraftState&) { return NewState(); }
  // Whether guesses cost next to nothing: then Propose is asked first, and chosen from its drafts
  // afterwards. Otherwise it is asked for as many as are verified.
  virtual bool is_cheap() const { return false; }
  // Known tokens that Follow has to read before there can be drafts; 0 if it need not be called,
  // null if this sequence will get none.
  virtual std::optional<int64_t> MissingTokens(const DraftRequest&) { return 0; }
  // Catches up with what is known: a drafter with a cache of its own reads what it lacks, a bounded
  // number of tokens per call. REQUIRES: no state twice.
  virtual void Follow(std::span<const DraftRequest>) {}
  // For each request up to max_drafts tokens that may follow; none where there is no guess, or
  // Follow has not caught up. One call for all sequences of a step, so that drafts are computed
  // side by side. REQUIRES: no state twice. THREADS: one call at a time, states included.
  virtual std::vector<std::vector<Token>> Propose(std::span<const DraftRequest> requests) = 0;
  // How sure it is of draft `index` of its last proposal for this state, as a number in
  // [0, kSurenessKinds): how often drafts are right is learnt for each by itself.
  virtual int Sureness(const DraftState&, int64_t /*index*/) const { return 0; }
  // The sequence has ended: what is worth keeping for others may be kept.
  virtual void Finish(DraftState&, KnownTokens, uint64_t /*salt*/) {}
  // Which hidden states of the target it wants to be told.
  virtual HiddenWanted hidden_wanted() const { return HiddenWanted::kNone; }
  // For HiddenWanted::kAll, after every step, in the order of positions; from an earlier one again
  // if the sequence lost its cache meanwhile.
  virtual void Report(const DraftReport&) {}
};

}  // namespace kvasir

#endif  // KVASIR_SPECULATIVE_DRAFTER_H_
