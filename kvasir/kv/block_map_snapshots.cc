#include "kvasir/kv/block_map_snapshots.h"

#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/kv/kv_size_class.h"

namespace kvasir {
namespace {

using Part = KvBlockMap::Part;

// Gives every block its number.
class Numbering {
 public:
  explicit Numbering(NumberedBlocks* out) : out_(out) {}

  uint32_t NumberOf(const BlockRef& block) {
    const auto [found, is_new] =
        numbers_.emplace(block.get(), static_cast<uint32_t>(out_->blocks.size()));
    if (is_new) {
      out_->blocks.push_back(block.get());
      out_->map.block_bytes.push_back(block.get()->owner->block_bytes());
    }
    return found->second;
  }

  std::vector<uint32_t> NumbersOf(const std::vector<BlockRef>& blocks) {
    std::vector<uint32_t> numbers;
    numbers.reserve(blocks.size());
    for (const BlockRef& block : blocks) numbers.push_back(NumberOf(block));
    return numbers;
  }

 private:
  NumberedBlocks* out_;
  std::unordered_map<const KvBlock*, uint32_t> numbers_;
};

void DescribeRows(const KvLayer& layer, Numbering* numbering, KvBlockMap::List* list) {
  list->head_first = layer.head().empty() ? 0 : layer.head_first();
  list->head = numbering->NumbersOf(layer.head());
  list->first_block = layer.first_block();
  list->blocks = numbering->NumbersOf(layer.blocks());
}

void DescribeStates(const RecurrentStates& states, size_t state, Numbering* numbering,
                    KvBlockMap::List* list) {
  if (!states.current.empty()) list->head = {numbering->NumberOf(states.current[state])};
  for (const RecurrentStates::Checkpoint& checkpoint : states.checkpoints) {
    list->positions.push_back(checkpoint.position);
    list->blocks.push_back(numbering->NumberOf(checkpoint.blocks[state]));
  }
}

// Stores and states of a plan come in the order of a map's lists.
void DescribeLists(const KvContent& content, Numbering* numbering, KvBlockMap::Sequence* sequence) {
  size_t store = 0;
  size_t state = 0;
  for (KvBlockMap::List& list : sequence->lists) {
    if (list.part == Part::kState) {
      DescribeStates(content.states, state++, numbering, &list);
    } else {
      DescribeRows(content.stores[store++], numbering, &list);
    }
  }
}

KvLayer LayerOf(const KvBlockMap::List& list, std::span<const BlockRef> blocks) {
  KvLayer layer(list.first_block);
  for (const uint32_t number : list.head) layer.AppendHead(blocks[number], list.head_first);
  for (const uint32_t number : list.blocks) layer.Append(blocks[number]);
  return layer;
}

void AddState(const KvBlockMap::List& list, std::span<const BlockRef> blocks,
              RecurrentStates* states) {
  for (const uint32_t number : list.head) states->current.push_back(blocks[number]);
  states->checkpoints.resize(list.positions.size());
  for (size_t i = 0; i < list.positions.size(); ++i) {
    states->checkpoints[i].position = list.positions[i];
    states->checkpoints[i].blocks.push_back(blocks[list.blocks[i]]);
  }
}

KvContent ContentOf(std::shared_ptr<const KvPlan> plan, const KvBlockMap::Sequence& sequence,
                    std::span<const BlockRef> blocks) {
  KvContent content = KvContent::Empty(std::move(plan));
  content.floor = sequence.floor;
  for (size_t i = 0; i < sequence.budgets.size(); ++i) {
    const KvBlockMap::Budget& budget = sequence.budgets[i];
    if (budget.until == 0) continue;
    content.kept[i] =
        std::make_shared<const KvKeptRows>(KvKeptRows{budget.until, budget.positions});
  }
  size_t store = 0;
  for (const KvBlockMap::List& list : sequence.lists) {
    if (list.part == Part::kState) {
      AddState(list, blocks, &content.states);
    } else {
      content.stores[store++] = LayerOf(list, blocks);
    }
  }
  return content;
}

Error Invalid(const std::string& name, const std::string& what) {
  return {ErrorCode::kInvalidArgument, "KV snapshot '" + name + "': " + what};
}

}  // namespace

Result<NumberedBlocks> NumberBlocks(std::span<const NamedSnapshot> snapshots) {
  if (snapshots.empty()) {
    return {ErrorCode::kInvalidArgument, "KV snapshots: there are none; give at least one"};
  }
  NumberedBlocks numbered;
  numbered.map.spec = snapshots[0].snapshot.spec();
  Numbering numbering(&numbered);
  for (const NamedSnapshot& named : snapshots) {
    const KvSnapshot& snapshot = named.snapshot;
    const KvContent& content = snapshot.content();
    if (!content.plan->Compatible(*snapshots[0].snapshot.content().plan)) {
      return Invalid(named.name, "its cache spec or pool is not that of the first one");
    }
    if (!named.tokens.empty() &&
        static_cast<int64_t>(named.tokens.size()) != snapshot.end() - snapshot.begin()) {
      return Invalid(named.name, "it has " + std::to_string(named.tokens.size()) + " tokens for " +
                                     std::to_string(snapshot.end() - snapshot.begin()) +
                                     " positions");
    }
    KvBlockMap::Sequence sequence = {.name = named.name,
                                     .begin = snapshot.begin(),
                                     .end = snapshot.end(),
                                     .floor = content.floor,
                                     .tokens = named.tokens,
                                     .lists = KvBlockMap::ListsOf(numbered.map.spec),
                                     .budgets = KvBlockMap::BudgetsOf(numbered.map.spec)};
    KVASIR_CHECK(sequence.budgets.size() == content.kept.size());
    for (size_t i = 0; i < content.kept.size(); ++i) {
      if (content.kept[i] == nullptr) continue;
      sequence.budgets[i].until = content.kept[i]->until;
      sequence.budgets[i].positions = content.kept[i]->positions;
    }
    DescribeLists(content, &numbering, &sequence);
    numbered.map.sequences.push_back(std::move(sequence));
  }
  return numbered;
}

std::vector<NamedSnapshot> SnapshotsOf(const KvBatch& batch) {
  std::vector<NamedSnapshot> snapshots;
  for (const SequenceId id : batch.ids()) {
    snapshots.push_back({std::to_string(id), batch.Find(id)->Snapshot(), {}});
  }
  return snapshots;
}

Result<std::vector<BlockRef>> TakeBlocks(KvPool* pool, const KvBlockMap& map) {
  std::vector<uint64_t> sizes = map.block_bytes;
  std::sort(sizes.begin(), sizes.end());
  std::vector<KvPool::Demand> demands;
  for (const uint64_t bytes : sizes) {
    if (demands.empty() || demands.back().block_bytes != bytes) demands.push_back({bytes, 0});
    ++demands.back().count;
  }
  KVASIR_TRY_OK(pool->EnsureFree(demands));
  std::vector<BlockRef> blocks;
  blocks.reserve(map.block_bytes.size());
  for (const uint64_t bytes : map.block_bytes) blocks.push_back(pool->Take(bytes));
  return blocks;
}

Result<std::vector<NamedSnapshot>> MakeSnapshots(KvPool* pool, const KvBlockMap& map,
                                                 std::span<const BlockRef> blocks) {
  KVASIR_CHECK(blocks.size() == map.block_bytes.size());
  KVASIR_TRY(const auto plan, KvPlan::Make(pool, std::make_shared<const KvCacheSpec>(map.spec)));
  std::vector<NamedSnapshot> snapshots;
  for (const KvBlockMap::Sequence& sequence : map.sequences) {
    snapshots.push_back(
        {sequence.name,
         KvSnapshot::FromContent(ContentOf(plan, sequence, blocks), sequence.begin, sequence.end),
         sequence.tokens});
  }
  return snapshots;
}

}  // namespace kvasir
