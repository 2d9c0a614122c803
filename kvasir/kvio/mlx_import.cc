// Rows of an mlx-lm prompt cache into blocks.
// Deliberately no conversion of codecs: what the file has is what the sequence gets.
#include <algorithm>
#include <cstring>
#include <utility>

#include "kvasir/formats/safetensors.h"
#include "kvasir/kv/block_map_snapshots.h"
#include "kvasir/kv/kv_store.h"
#include "kvasir/kvio/mlx_prompt_cache.h"
#include "kvasir/kvio/mlx_rows.h"

namespace kvasir {
namespace {

RetentionSpec RetentionOf(const MlxLayerCache& layer) {
  return layer.kind == MlxLayerCache::Kind::kRotating
             ? RetentionSpec::Window(layer.max_size, layer.keep)
             : RetentionSpec::All();
}

// "kv_heads 2, key_dim 64, value_dim 64, f16 / f16, window:512"
std::string Name(const KvLayout& layout, const RetentionSpec& retention) {
  return "kv_heads " + std::to_string(layout.kv_heads) + ", key_dim " +
         std::to_string(layout.key_dim) + ", value_dim " + std::to_string(layout.value_dim) + ", " +
         layout.key_codec.name() + " / " + layout.value_codec.name() + ", " + retention.name();
}

// The caches of a file stand for the layers that own rows, in order.
Status CheckSpec(const MlxCache& cache, const KvCacheSpec& spec) {
  KVASIR_TRY_OK(spec.Validate());
  size_t next = 0;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const KvLayerSpec& layer = spec.layers[i];
    const std::string name = "layer " + std::to_string(i);
    if (layer.is_recurrent()) {
      return {ErrorCode::kInvalidArgument,
              name + " is recurrent, a prompt cache of mlx-lm has rows only"};
    }
    if (!layer.owns_rows()) continue;
    if (next == cache.layers.size()) {
      return {ErrorCode::kInvalidArgument, "it has " + std::to_string(next) + " caches, which " +
                                               name + " finds too few: it is of another model"};
    }
    const MlxLayerCache& held = cache.layers[next++];
    if (layer.layout == held.layout && layer.retention == RetentionOf(held)) continue;
    return {ErrorCode::kInvalidArgument, "cache " + std::to_string(next - 1) + " has " +
                                             Name(held.layout, RetentionOf(held)) + ", " + name +
                                             " needs " + Name(layer.layout, layer.retention) +
                                             " and nothing else"};
  }
  if (next == cache.layers.size()) return {};
  return {ErrorCode::kInvalidArgument, "it has " + std::to_string(cache.layers.size()) +
                                           " caches for " + std::to_string(next) +
                                           " layers: it is of another model"};
}

// Makes the map of one sequence and finds the place of each row.
class Importer {
 public:
  Importer(const MlxCache& cache, KvCacheSpec spec) : cache_(cache) {
    map_.spec = std::move(spec);
    KvBlockMap::Sequence sequence;
    sequence.end = cache.layers[0].offset;
    sequence.lists = KvBlockMap::ListsOf(map_.spec);
    map_.sequences.push_back(std::move(sequence));
  }

  Result<KvSnapshot> Import(KvPool* pool) {
    for (size_t i = 0; i < cache_.layers.size(); ++i) KVASIR_TRY_OK(Number(i));
    KVASIR_TRY(const std::vector<BlockRef> blocks, TakeBlocks(pool, map_));
    for (size_t i = 0; i < blocks.size(); ++i) {
      std::memset(blocks[i].data(), 0, map_.block_bytes[i]);
    }
    for (size_t i = 0; i < cache_.layers.size(); ++i) CopyRows(i, blocks);
    KVASIR_TRY(std::vector<NamedSnapshot> snapshots, MakeSnapshots(pool, map_, blocks));
    return std::move(snapshots[0].snapshot);
  }

 private:
  KvBlockMap::List& ListOf(size_t cache) { return map_.sequences[0].lists[cache]; }

  void AddBlocks(int64_t begin, int64_t end, const KvStore& store, std::vector<uint32_t>* out) {
    for (int64_t block = begin; block < end; ++block) {
      out->push_back(static_cast<uint32_t>(map_.block_bytes.size()));
      map_.block_bytes.push_back(store.BlockBytes(block));
    }
  }

  // Numbers the blocks that a sequence at `offset` holds, and raises the floor to the first state
  // that the rows of the file allow.
  Status Number(size_t cache) {
    const MlxLayerCache& held = cache_.layers[cache];
    KvBlockMap::List& list = ListOf(cache);
    KVASIR_TRY(const auto stores,
               KvStore::OfLayer(list.layer, map_.spec.layers[static_cast<size_t>(list.layer)]));
    const KvStore& store = stores[0];
    const int64_t needed = store.retention().FirstNeeded(held.offset) / kBlockTokens;
    if (needed > store.head_blocks()) {
      AddBlocks(0, store.head_blocks(), store, &list.head);
      list.first_block = needed;
    }
    AddBlocks(list.first_block, BlocksUpTo(held.offset), store, &list.blocks);
    Position& floor = map_.sequences[0].floor;
    floor = std::max(floor, store.retention().EarliestState(held.tail_begin()));
    return {};
  }

  void CopyRows(size_t cache, const std::vector<BlockRef>& blocks) {
    const MlxLayerCache& held = cache_.layers[cache];
    const KvBlockMap::List& list = ListOf(cache);
    for (size_t i = 0; i < held.order.size(); ++i) {
      const auto row = static_cast<int64_t>(i);
      const Position position =
          row < held.head_rows ? row : held.tail_begin() + row - held.head_rows;
      const int64_t index = position / kBlockTokens;
      uint32_t number = 0;
      if (index >= list.first_block) {
        number = list.blocks[static_cast<size_t>(index - list.first_block)];
      } else if (index < static_cast<int64_t>(list.head.size())) {
        number = list.head[static_cast<size_t>(index)];
      } else {
        continue;  // left over from a long chunk, out of every later query's view
      }
      MlxRowToBlock(held, held.order[i], map_.LayoutOf(list, index), blocks[number].data(),
                    static_cast<int>(position % kBlockTokens));
    }
  }

  const MlxCache& cache_;
  KvBlockMap map_;
};

}  // namespace

KvCacheSpec SpecOfMlxCache(const MlxCache& cache) {
  KvCacheSpec spec;
  for (const MlxLayerCache& layer : cache.layers) {
    spec.layers.push_back({.layout = layer.layout, .retention = RetentionOf(layer)});
  }
  return spec;
}

Result<MlxPromptCache> ImportMlxCache(KvPool* pool, const MlxCache& cache,
                                      const KvCacheSpec* spec) {
  KvCacheSpec own = spec == nullptr ? SpecOfMlxCache(cache) : *spec;
  if (const Status status = own.Validate(); !status.ok()) {
    return {ErrorCode::kUnsupported, status.error().message};
  }
  KVASIR_TRY_OK(CheckSpec(cache, own));
  KVASIR_TRY(KvSnapshot snapshot, Importer(cache, std::move(own)).Import(pool));
  return MlxPromptCache{std::move(snapshot), cache.metadata};
}

Result<MlxPromptCache> ImportMlxPromptCache(KvPool* pool, const std::string& path,
                                            const KvCacheSpec* spec) {
  KVASIR_TRY(const SafetensorsFile file, SafetensorsFile::Open(path));
  const auto cache = ParseMlxCache(file.tensors(), file.metadata());
  if (!cache.ok()) return WithContext(cache.error(), path);
  auto imported = ImportMlxCache(pool, *cache, spec);
  if (!imported.ok()) return WithContext(imported.error(), path);
  return imported;
}

}  // namespace kvasir
