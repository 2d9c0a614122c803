// CachedSequence: the tokens of one conversation with their cache, reused from turn to turn.
// Deliberately one sequence for one caller: sharing between requests is the prefix tree's business.
#ifndef KVASIR_ENGINE_CACHED_SEQUENCE_H_
#define KVASIR_ENGINE_CACHED_SEQUENCE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/base/token.h"
#include "kvasir/kv/block_map_snapshots.h"
#include "kvasir/kv/kv_sequence.h"
#include "kvasir/kv/kv_snapshot.h"
#include "kvasir/model/model.h"
#include "kvasir/speculative/drafter.h"

namespace kvasir {

struct EvaluateOptions {
  // Tokens per forward pass. Results do not depend on it; scratch memory and the time until a
  // cancellation is noticed do.
  int64_t chunk_tokens = 512;
  // Asked before every chunk; true ends with kCancelled, keeping the chunks already done.
  std::function<bool()> is_cancelled;
  // Called after every chunk with tokens done and tokens in all.
  std::function<void(int64_t done, int64_t total)> progress;
  // Told the hidden states of the tokens [begin, begin + states.rows) as the cache gets them: of
  // the last one or, chunk by chunk, of all. The states live in the workspace. Not asked: none.
  std::function<void(Position begin, ConstFloatRows states)> on_hidden;
  HiddenWanted hidden = HiddenWanted::kNone;
};

class CachedSequence {
 public:
  // An empty one. Model and pool must outlive it. ERRORS: as KvSequence::Create
  // and CheckCacheSpec.
  static Result<CachedSequence> Create(const Model* model, KvPool* pool,
                                       std::shared_ptr<const KvCacheSpec> spec);
  // The sequence that Snapshots() made these of, in blocks of `pool`.
  // ERRORS: kInvalidArgument if their spec is not `spec`, if they are not one sequence from its
  // first token on with its restore points, or if there is not one token per position;
  // kFailedPrecondition from KvSnapshot::Restorable.
  static Result<CachedSequence> Restore(const Model* model, KvPool* pool,
                                        std::shared_ptr<const KvCacheSpec> spec,
                                        std::span<const NamedSnapshot> snapshots);

  const Model* model() const { return model_; }
  // Tokens whose rows the cache holds, all of them.
  const std::vector<Token>& tokens() const { return tokens_; }
  Position position() const { return sequence_.position(); }
  const KvSequence& sequence() const { return sequence_; }

  // Goes back to the longest state that is a prefix of `prompt` and shorter than it (the last token
  // is always evaluated, for its logits). Trims where every layer still holds what the earlier
  // state needs and no row of it was evicted; otherwise returns to a restore point; otherwise to
  // the empty sequence.
  // Returns the tokens kept. Copies no row.
  int64_t Rewind(std::span<const Token> prompt);
  // The same for the latest state at or before `target`. Returns the position reached.
  Position RewindTo(Position target);

  // Appends `tokens` and returns the logits of the last one, which live in `workspace`. Where
  // layers have states, adds restore points shortly before the end and one token before it. When
  // the pool is full, restore points are given up before it fails. ERRORS: as Model::Forward;
  // kCancelled; kInvalidArgument for no tokens. The sequence then ends after the last chunk that
  // was done.
  Result<std::span<const float>> Evaluate(std::span<const Token> tokens, Workspace& workspace,
                                          const EvaluateOptions& options = {});

  // Appends `tokens`, a known one and drafts behind it, and asks `judge` how many of them to keep,
  // at least the first. REQUIRES: judge is not empty. It gets the logits of each, which live in
  // `workspace`. Gives up nothing for drafts. Of `options` only the hidden states count, those of
  // tokens kept. ERRORS: as Model::Forward, for instance where memory is short: nothing is appended
  // then and judge was not asked. kFailedPrecondition where a cache cannot go back.
  Status EvaluateDrafts(std::span<const Token> tokens, Workspace& workspace,
                        const std::function<int64_t(ConstFloatRows logits)>& judge,
                        const EvaluateOptions& options = {});

  // Remembers the current position as one that Rewind can return to: references, not copies.
  void AddRestorePoint();

  // An independent copy: shares every block.
  CachedSequence Fork() const;

  // For files: the sequence with its tokens, then its restore points in ascending order, without
  // theirs. References, not copies.
  std::vector<NamedSnapshot> Snapshots() const;

 private:
  CachedSequence(const Model* model, std::shared_ptr<const KvCacheSpec> spec, KvSequence sequence)
      : model_(model), spec_(std::move(spec)), sequence_(std::move(sequence)) {}

  Result<ConstFloatRows> Step(const SequenceRun& run, Workspace& workspace);
  void AddRestorePointAt(Position at);
  void KeepStates(int64_t tokens);
  void AddKeptRestorePoints();
  bool TrimTo(Position target);
  bool RestoreNear(Position target);

  const Model* model_;
  std::shared_ptr<const KvCacheSpec> spec_;
  KvSequence sequence_;
  std::vector<Token> tokens_;
  std::deque<KvSnapshot> restore_points_;  // ascending end(); each starts at 0
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_CACHED_SEQUENCE_H_
