#include "kvasir/engine/prefix_fetch.h"

#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "kvasir/base/check.h"
#include "kvasir/engine/lent_snapshot.h"
#include "kvasir/engine/prefix_reading.h"
#include "kvasir/engine/prefix_store.h"

namespace kvasir {

PrefixFetch::~PrefixFetch() {
  reading_->is_stopped = true;
  if (lent_ != nullptr) (void)lent_->TakeBack();
}

FetchState PrefixFetch::state() const { return reading_->state; }

Result<std::shared_ptr<LentBlocks>> PrefixFetch::Read(KvPool* pool, PrefixTree* tree) {
  KVASIR_CHECK(state() == FetchState::kOpened);
  KVASIR_TRY(std::vector<BlockRef> blocks, TakeBlocks(pool, tree, reading_->joined.map));
  for (const BlockRef& block : blocks) reading_->targets.push_back(block.data());
  reading_->lent = lent_ = std::make_shared<LentBlocks>(std::move(blocks));
  reading_->state = FetchState::kReading;
  deadline_ = std::chrono::steady_clock::now() + patience_;
  store_->PostRead(reading_, &PrefixStore::ReadBlocks);
  return lent_;
}

Result<KvSnapshot> PrefixFetch::Take(KvPool* pool) {
  KVASIR_CHECK(state() == FetchState::kRead);
  const std::optional<LentBlocks::Held> held = lent_->TakeBack();
  if (!held) return TakenBack().error();
  KVASIR_TRY(auto snapshots,
             MakeSnapshots(pool, reading_->joined.map, std::get<std::vector<BlockRef>>(*held)));
  return std::move(snapshots[0].snapshot);
}

}  // namespace kvasir
