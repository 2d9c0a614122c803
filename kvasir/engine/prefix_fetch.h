// PrefixFetch: cached tokens on their way from the store.
// Deliberately without policy: the engine decides whether it is worth waiting for.
#ifndef KVASIR_ENGINE_PREFIX_FETCH_H_
#define KVASIR_ENGINE_PREFIX_FETCH_H_

#include <chrono>
#include <memory>
#include <utility>

#include "kvasir/base/result.h"
#include "kvasir/base/token.h"
#include "kvasir/engine/lent_blocks.h"
#include "kvasir/engine/prefix_key.h"
#include "kvasir/kv/kv_pool.h"
#include "kvasir/kv/kv_snapshot.h"
#include "kvasir/kv/prefix_tree.h"

namespace kvasir {

class PrefixStore;
struct PrefixReading;

enum class FetchState {
  kOpening,  // files are looked at
  kOpened,   // it is known which blocks it takes: PrefixFetch::Read
  kReading,
  kRead,  // PrefixFetch::Take
  kFailed,
};

// Made by PrefixStore::Fetch. Destroyed before that, it gives up what is under way, and the blocks.
// THREADS: the store's caller.
class PrefixFetch {
 public:
  ~PrefixFetch();
  PrefixFetch(const PrefixFetch&) = delete;
  PrefixFetch& operator=(const PrefixFetch&) = delete;

  FetchState state() const;
  // Whether the reader has taken longer to open the files, or to read them, than it was given for
  // each. How long the caller takes in between is not the disk's fault.
  bool is_late() const { return std::chrono::steady_clock::now() >= deadline_; }
  // Takes blocks, for which the tree is evicted, and begins to read into them: they are lent.
  // REQUIRES: kOpened. ERRORS: kResourceExhausted.
  Result<std::shared_ptr<LentBlocks>> Read(KvPool* pool, PrefixTree* tree);
  // What continues the prefix that it began at. REQUIRES: kRead. ERRORS: kResourceExhausted if the
  // blocks were taken back.
  Result<KvSnapshot> Take(KvPool* pool);

 private:
  friend class PrefixStore;
  PrefixFetch(PrefixStore* store, std::shared_ptr<PrefixReading> reading,
              std::chrono::milliseconds patience)
      : store_(store), reading_(std::move(reading)), patience_(patience) {}

  PrefixStore* const store_;
  const std::shared_ptr<PrefixReading> reading_;
  const std::chrono::milliseconds patience_;
  std::chrono::steady_clock::time_point deadline_ = std::chrono::steady_clock::now() + patience_;
  std::shared_ptr<LentBlocks> lent_;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_PREFIX_FETCH_H_
