#include "kvasir/kv/snapshot_file_check.h"

#include <algorithm>
#include <string>
#include <vector>

#include "kvasir/kv/kept_rows.h"
#include "kvasir/kv/kv_sequence.h"
#include "kvasir/kv/kv_store.h"

namespace kvasir {
namespace {

using Part = KvBlockMap::Part;

Error Corrupt(std::string what) { return {ErrorCode::kCorrupt, std::move(what)}; }

// Checks the sequences of one map one after the other.
class Checker {
 public:
  explicit Checker(const KvBlockMap& map) : map_(map), used_(map.block_bytes.size(), false) {}

  Status Check() {
    if (map_.sequences.empty()) return Corrupt("it holds no sequence");
    for (const KvBlockMap::Sequence& sequence : map_.sequences) {
      if (const Status status = CheckSequence(sequence); !status.ok()) {
        return WithContext(status.error(), "sequence '" + sequence.name + "'");
      }
    }
    const auto unused = std::find(used_.begin(), used_.end(), false);
    if (unused == used_.end()) return {};
    return Corrupt("block " + std::to_string(unused - used_.begin()) + " belongs to no sequence");
  }

 private:
  Status CheckSequence(const KvBlockMap::Sequence& sequence) {
    if (sequence.begin < 0 || sequence.begin > sequence.end || sequence.end > kMaxPosition) {
      return Corrupt("range [" + std::to_string(sequence.begin) + ", " +
                     std::to_string(sequence.end) + ") is not one of positions");
    }
    // Of the left part of imported rows it lies beyond the end.
    if (sequence.floor < 0 || sequence.floor > kMaxPosition) {
      return Corrupt("floor is " + std::to_string(sequence.floor) + ", it must be from 0 to " +
                     std::to_string(kMaxPosition));
    }
    if (!sequence.tokens.empty() &&
        static_cast<int64_t>(sequence.tokens.size()) != sequence.end - sequence.begin) {
      return Corrupt("it has " + std::to_string(sequence.tokens.size()) + " tokens for " +
                     std::to_string(sequence.end - sequence.begin) + " positions");
    }
    for (const KvBlockMap::Budget& budget : sequence.budgets) {
      if (const Status status = CheckBudget(sequence, budget); !status.ok()) {
        return WithContext(status.error(), "budget of layer " + std::to_string(budget.layer));
      }
    }
    for (const KvBlockMap::List& list : sequence.lists) {
      const Status status =
          list.part == Part::kState ? CheckStates(sequence, list) : CheckRows(sequence, list);
      if (!status.ok()) {
        return WithContext(status.error(), "layer " + std::to_string(list.layer));
      }
    }
    return {};
  }

  Status CheckBudget(const KvBlockMap::Sequence& sequence, const KvBlockMap::Budget& budget) {
    const RetentionSpec& retention = LayerOf(budget.layer).retention;
    const auto rows = static_cast<int64_t>(budget.positions.size());
    if (budget.until < 0 || budget.until > kMaxPosition || rows > budget.until ||
        (budget.until > 0 && rows == 0)) {
      return Corrupt(std::to_string(rows) + " rows cannot be kept of the positions before " +
                     std::to_string(budget.until));
    }
    std::vector<Position> ascending = budget.positions;
    std::sort(ascending.begin(), ascending.end());
    if (std::adjacent_find(ascending.begin(), ascending.end()) != ascending.end() ||
        (rows > 0 && (ascending.front() < 0 || ascending.back() >= budget.until))) {
      return Corrupt("the positions kept must differ and be from 0 to " +
                     std::to_string(budget.until - 1));
    }
    const int64_t recent = std::min(retention.recent, rows);
    if (!std::equal(ascending.end() - recent, ascending.end(), budget.positions.end() - recent)) {
      return Corrupt("the " + std::to_string(recent) +
                     " latest positions kept must come last, ascending");
    }
    if (retention.interval == 0 || sequence.end < budget.until) return {};
    const int64_t stored = rows + sequence.end - budget.until;
    if (stored <= retention.size + retention.interval) return {};
    return Corrupt(std::to_string(stored) + " rows are more than '" + retention.name() +
                   "' ever stores");
  }

  // Rows stored of this layer at the sequence's end; 0 if those before an eviction were cut off.
  int64_t RowsOf(const KvBlockMap::Sequence& sequence, int layer) const {
    const RetentionSpec& retention = LayerOf(layer).retention;
    if (retention.kind != RetentionSpec::Kind::kBudget) return sequence.end;
    for (const KvBlockMap::Budget& budget : sequence.budgets) {
      const bool own =
          retention.per_layer ? budget.layer == layer : !LayerOf(budget.layer).retention.per_layer;
      if (!own) continue;
      if (sequence.end < budget.until) return 0;
      return static_cast<int64_t>(budget.positions.size()) + sequence.end - budget.until;
    }
    return sequence.end;
  }

  Status CheckRows(const KvBlockMap::Sequence& sequence, const KvBlockMap::List& list) {
    const int64_t end = BlocksUpTo(RowsOf(sequence, list.layer));
    const auto count = static_cast<int64_t>(list.blocks.size());
    // An empty list of a slice may begin anywhere.
    if (list.first_block < 0 || list.first_block > kMaxPosition / kBlockTokens + 1 ||
        (count > 0 && list.first_block + count != end)) {
      return Corrupt("blocks [" + std::to_string(list.first_block) + ", " +
                     std::to_string(list.first_block + count) + ") do not end at block " +
                     std::to_string(end));
    }
    KVASIR_TRY(const auto stores, KvStore::OfLayer(list.layer, LayerOf(list.layer)));
    const KvStore& store = stores[list.part == Part::kRecent ? 1 : 0];
    const auto head = static_cast<int64_t>(list.head.size());
    if (list.head_first < 0 || list.head_first > store.head_blocks() ||
        head > store.head_blocks() - list.head_first ||
        (head > 0 &&
         (list.head_first + head >= list.first_block || list.head_first + head > end))) {
      return Corrupt("head blocks [" + std::to_string(list.head_first) + ", " +
                     std::to_string(list.head_first + head) + ") are not among the first " +
                     std::to_string(store.head_blocks()) + " and before the others");
    }
    for (int64_t i = 0; i < head; ++i) {
      KVASIR_TRY_OK(Use(list.head[static_cast<size_t>(i)], store.BlockBytes(list.head_first + i)));
    }
    for (int64_t i = 0; i < count; ++i) {
      KVASIR_TRY_OK(
          Use(list.blocks[static_cast<size_t>(i)], store.BlockBytes(list.first_block + i)));
    }
    return {};
  }

  Status CheckStates(const KvBlockMap::Sequence& sequence, const KvBlockMap::List& list) {
    // The states of all layers are held of the same positions.
    const auto first = std::find_if(sequence.lists.begin(), sequence.lists.end(),
                                    [](const auto& other) { return other.part == Part::kState; });
    if (list.head.size() > 1 || list.head.size() != first->head.size() ||
        list.blocks.size() != list.positions.size() || list.positions != first->positions) {
      return Corrupt("its states must be those of the positions of the other layers'");
    }
    Position last = 0;
    for (const Position position : list.positions) {
      if (position <= last || position < sequence.begin || position > sequence.end) {
        return Corrupt("a checkpoint at " + std::to_string(position) + " is out of order or range");
      }
      last = position;
    }
    const size_t bytes = LayerOf(list.layer).state_bytes;
    for (const uint32_t number : list.head) KVASIR_TRY_OK(Use(number, bytes));
    for (const uint32_t number : list.blocks) KVASIR_TRY_OK(Use(number, bytes));
    return {};
  }

  Status Use(uint32_t number, size_t bytes) {
    if (number >= used_.size()) {
      return Corrupt("it names block " + std::to_string(number) + " of " +
                     std::to_string(used_.size()));
    }
    if (map_.block_bytes[number] != bytes) {
      return Corrupt("block " + std::to_string(number) + " has " +
                     std::to_string(map_.block_bytes[number]) + " bytes, its layout " +
                     std::to_string(bytes));
    }
    used_[number] = true;
    return {};
  }

  const KvLayerSpec& LayerOf(int layer) const {
    return map_.spec.layers[static_cast<size_t>(layer)];
  }

  const KvBlockMap& map_;
  std::vector<bool> used_;
};

}  // namespace

Status CheckBlockMap(const KvBlockMap& map) { return Checker(map).Check(); }

}  // namespace kvasir
