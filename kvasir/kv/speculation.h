// A transaction on sequences: append drafts, verify, keep a different length of each, or nothing.
// Deliberately knows no drafter and no token: only positions.
#ifndef KVASIR_KV_SPECULATION_H_
#define KVASIR_KV_SPECULATION_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/kv/kv_sequence.h"

namespace kvasir {

// While it is open its sequences release no rows, so that going back is always possible. Every way
// out but Commit rolls back: afterwards a sequence is as if nothing had been appended since Begin.
class Speculation {
 public:
  // Opens on `sequences` at their current positions. They must stay where they are until this
  // object is closed or destroyed. Takes a checkpoint of recurrent layers and evicts the rows of
  // budgets that are full, which an open speculation must not do: KvSequence::RunLimit() says how
  // many drafts fit. ERRORS: kFailedPrecondition if one of them is in an open speculation already,
  // is named twice, or has recurrent layers and a reservation; kResourceExhausted from
  // KvSequence::CompactAllDue. Then none is opened, and nothing was evicted.
  static Result<Speculation> Begin(std::span<KvSequence* const> sequences);

  Speculation(Speculation&& other) noexcept;
  Speculation& operator=(Speculation&&) = delete;
  ~Speculation();  // Rollback() if still open.

  bool open() const { return open_; }
  // Tokens appended to the i-th sequence since Begin. REQUIRES: open, i < number of sequences.
  int64_t appended(size_t i) const;

  // Keeps accepted[i] tokens beyond the start of the i-th sequence, drops the rest, closes.
  // ERRORS: kInvalidArgument unless there is a count within [0, appended(i)] for every sequence:
  // nothing is kept or dropped and the speculation stays open; kFailedPrecondition when closed, or
  // (still open) if a sequence has recurrent layers and its count is neither 0 nor all nor leads to
  // a checkpoint that was taken meanwhile (KvSequence::KeepStatesAt).
  Status Commit(std::span<const int64_t> accepted);
  // Drops everything appended since Begin, reservations included, and closes. No effect when
  // closed.
  void Rollback();

 private:
  struct Member {
    KvSequence* sequence = nullptr;
    Position start = 0;
    bool checkpointed = false;  // by Begin, and nobody before
  };

  Speculation() = default;
  Status Open(KvSequence* sequence, size_t index);
  static void Close(const Member& member, Position position);
  static void Forget(const Member& member);

  std::vector<Member> members_;
  bool open_ = false;
};

}  // namespace kvasir

#endif  // KVASIR_KV_SPECULATION_H_
