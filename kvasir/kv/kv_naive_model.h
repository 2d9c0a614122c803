// What must be true of a sequence or a snapshot, kept the naive way: every token, the set of blocks
// that must be held, the positions that a budget has left, the positions with a recurrent state.
// Deliberately independent of the library but for row_codec.h: definitions, brute force, sets.
#ifndef KVASIR_KV_KV_NAIVE_MODEL_H_
#define KVASIR_KV_KV_NAIVE_MODEL_H_

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "kvasir/kv/kv_test_util.h"
#include "kvasir/kv/row_codec.h"
#include "kvasir/tensor/row_norm.h"

namespace kvasir::kv_testing {

using BlockSet = std::set<int64_t>;

inline BlockSet Within(const BlockSet& blocks, int64_t begin, int64_t end) {
  BlockSet within;
  for (const int64_t block : blocks) {
    if (block >= begin && block < end) within.insert(block);
  }
  return within;
}

inline int64_t CeilBlocks(int64_t rows) { return (rows + 63) / 64; }

struct NaiveModel {
  struct Kept {
    bool any = false;
    Position until = 0;
    std::vector<Position> positions;  // by row
    bool ordered = true;              // false: sorted, the order of rows is still to be learned
    friend bool operator==(const Kept&, const Kept&) = default;
  };
  // A layer's rows, or its recent copies.
  struct Store {
    int layer = 0;
    bool recent = false;
    int group = -1;
    BlockSet held;  // blocks of rows
  };

  std::shared_ptr<const KvCacheSpec> spec;
  std::vector<Token> tokens;  // [0, end), before `begin` too
  Position begin = 0;
  std::vector<Store> stores;
  std::vector<std::vector<int>> groups;       // layers
  std::vector<Kept> kept;                     // per group
  std::vector<std::vector<int64_t>> written;  // per group, by position: its row when it was new
  std::set<Position> checkpoints;
  bool has_state = true;  // the recurrent state at the end is known

  explicit NaiveModel(std::shared_ptr<const KvCacheSpec> the_spec) : spec(std::move(the_spec)) {
    int common = -1;
    for (size_t i = 0; i < spec->layers.size(); ++i) {
      const KvLayerSpec& layer = spec->layers[i];
      if (!layer.owns_rows()) continue;
      int group = -1;
      if (layer.retention.kind == RetentionSpec::Kind::kBudget) {
        group = layer.retention.per_layer ? -1 : common;
        if (group < 0) {
          group = static_cast<int>(groups.size());
          groups.emplace_back();
        }
        if (!layer.retention.per_layer) common = group;
        groups[static_cast<size_t>(group)].push_back(static_cast<int>(i));
      }
      stores.push_back({static_cast<int>(i), false, group, {}});
      if (layer.layout.dense_recent > 0) {
        stores.push_back({static_cast<int>(i), true, group, {}});
      }
    }
    kept.resize(groups.size());
    written.resize(groups.size());
  }

  Position end() const { return static_cast<Position>(tokens.size()); }
  const KvLayerSpec& LayerOf(const Store& store) const {
    return spec->layers[static_cast<size_t>(store.layer)];
  }
  const RetentionSpec& BudgetOf(size_t group) const {
    return spec->layers[static_cast<size_t>(groups[group][0])].retention;
  }
  int64_t Row(int group, Position position) const {
    if (group < 0 || !kept[static_cast<size_t>(group)].any) return position;
    const Kept& k = kept[static_cast<size_t>(group)];
    return static_cast<int64_t>(k.positions.size()) + position - k.until;
  }
  // Positions that were evicted with others; nothing can go back there.
  bool Lost(int group, Position position) const {
    return group >= 0 && kept[static_cast<size_t>(group)].any &&
           position < kept[static_cast<size_t>(group)].until;
  }
  std::vector<Position> PositionsOfRows(int group) const {
    std::vector<Position> positions;
    Position next = 0;
    if (group >= 0 && kept[static_cast<size_t>(group)].any) {
      positions = kept[static_cast<size_t>(group)].positions;
      next = kept[static_cast<size_t>(group)].until;
    }
    for (; next < end(); ++next) positions.push_back(next);
    return positions;
  }
  bool recurrent() const {
    return std::any_of(spec->layers.begin(), spec->layers.end(),
                       [](const KvLayerSpec& layer) { return layer.is_recurrent(); });
  }

  // First row, the head aside, that a query whose row is `next` or later sees.
  int64_t FirstSeen(const Store& store, int64_t next) const {
    const KvLayerSpec& layer = LayerOf(store);
    if (store.recent) {
      return std::max<int64_t>(0,
                               (std::max<int64_t>(next, 1) - layer.layout.dense_recent) / 64 * 64);
    }
    const RetentionSpec& retention = layer.retention;
    switch (retention.kind) {
      case RetentionSpec::Kind::kWindow:
        return std::max<int64_t>(0, next + 1 - (retention.size - retention.keep));
      case RetentionSpec::Kind::kChunk:
        return next - next % retention.size;
      default:
        return 0;
    }
  }
  int64_t HeadBlocks(const Store& store) const {
    const RetentionSpec& retention = LayerOf(store).retention;
    const bool window = retention.kind == RetentionSpec::Kind::kWindow && !store.recent;
    return window ? CeilBlocks(retention.keep) : 0;
  }

  enum class Need { kHeld, kNothing, kMissing };
  // Whether the state at `at` needs anything, and whether all of it is held.
  Need NeedAt(Position at) const {
    if (at == 0) return Need::kNothing;
    if (recurrent() && !(at == end() && has_state) && !checkpoints.contains(at)) {
      return Need::kMissing;
    }
    bool something = recurrent();
    for (const Store& store : stores) {
      if (Lost(store.group, at)) return Need::kMissing;
      const int64_t rows = Row(store.group, at);
      for (int64_t block = 0; block < CeilBlocks(rows); ++block) {
        if (block >= HeadBlocks(store) && block < FirstSeen(store, rows) / 64) continue;
        something = true;
        if (!store.held.contains(block)) return Need::kMissing;
      }
    }
    return something ? Need::kHeld : Need::kNothing;
  }

  void Append(const std::vector<Token>& more) {
    for (size_t group = 0; group < groups.size() && !more.empty(); ++group) {
      if (Due(group)) Evict(group);
    }
    std::vector<int64_t> first_new;
    for (const Store& store : stores) first_new.push_back(Row(store.group, end()) / 64);
    for (const Token token : more) {
      for (size_t group = 0; group < groups.size(); ++group) {
        written[group].push_back(Row(static_cast<int>(group), end()));
      }
      tokens.push_back(token);
    }
    for (size_t i = 0; i < stores.size(); ++i) {
      for (int64_t b = first_new[i]; b < CeilBlocks(Row(stores[i].group, end())); ++b) {
        stores[i].held.insert(b);
      }
    }
    if (!more.empty()) has_state = true;
  }

  // After [run_begin, end()) was appended at one go. In chunks the last run can be taken back, and
  // where it began at a border one token more.
  void Release(Position run_begin) {
    for (Store& store : stores) {
      const int64_t rows = Row(store.group, end());
      const bool goes_back = LayerOf(store).retention.kind == RetentionSpec::Kind::kChunk &&
                             !store.recent && run_begin < end();
      const int64_t last = goes_back ? std::max<int64_t>(run_begin - 1, 0) : rows;
      BlockSet held = Within(store.held, 0, HeadBlocks(store));
      held.merge(Within(store.held, FirstSeen(store, last) / 64, CeilBlocks(rows)));
      store.held = std::move(held);
    }
  }

  void Cut(Position at) {
    tokens.resize(static_cast<size_t>(at));
    for (auto& rows : written) rows.resize(static_cast<size_t>(at));
    if (at == 0) kept.assign(kept.size(), {});
    std::erase_if(checkpoints, [&](Position p) { return p > at || at == 0; });
    has_state = true;
    for (Store& store : stores) {
      store.held = Within(store.held, 0, CeilBlocks(Row(store.group, at)));
    }
  }

  NaiveModel Slice(Position from, Position to) const {
    NaiveModel slice = *this;
    slice.begin = from;
    if (to == 0) slice.kept.assign(kept.size(), {});
    slice.tokens.resize(static_cast<size_t>(to));
    for (auto& rows : slice.written) rows.resize(static_cast<size_t>(to));
    std::erase_if(slice.checkpoints, [&](Position p) { return p < from || p > to; });
    slice.has_state = (to == end() && has_state) || to == 0 || checkpoints.contains(to);
    for (Store& store : slice.stores) {
      if (Lost(store.group, to)) {
        store.held.clear();
        continue;
      }
      const int64_t first = Lost(store.group, from) ? 0 : Row(store.group, from);
      store.held = Within(store.held, first / 64, CeilBlocks(Row(store.group, to)));
    }
    return slice;
  }

  bool CanSplit(Position at) const {
    return at == begin || std::none_of(kept.begin(), kept.end(),
                                       [&](const Kept& k) { return k.any && at < k.until; });
  }

  // This continued by `next`; false if what was evicted does not go together.
  bool Merge(const NaiveModel& next, NaiveModel* merged) const {
    *merged = next;
    merged->begin = begin;
    for (size_t i = 0; i < stores.size(); ++i) {
      const int group = stores[i].group;
      if (next.Lost(group, next.begin)) continue;
      if (group >= 0 &&
          !(kept[static_cast<size_t>(group)] == next.kept[static_cast<size_t>(group)])) {
        return false;
      }
      merged->stores[i].held = Reachable(stores[i].held, next.stores[i].held, HeadBlocks(stores[i]),
                                         CeilBlocks(next.Row(group, next.end())));
    }
    merged->checkpoints.insert(checkpoints.begin(), checkpoints.end());
    if (next.begin == next.end()) merged->has_state = has_state || next.has_state;
    return true;
  }

  // Whether the next token makes a budget evict.
  bool Due(size_t group) const {
    const RetentionSpec& budget = BudgetOf(group);
    return budget.interval > 0 &&
           Row(static_cast<int>(group), end()) >= budget.size + budget.interval;
  }

  // Brute force: protected rows, then the best of the others, later positions among equals.
  void Evict(size_t group) {
    const RetentionSpec& budget = BudgetOf(group);
    std::vector<Position> positions = PositionsOfRows(static_cast<int>(group));
    std::sort(positions.begin(), positions.end());
    const auto rows = static_cast<int64_t>(positions.size());
    std::vector<std::tuple<bool, float, Position>> ranked;
    for (int64_t i = 0; i < rows; ++i) {
      const Position position = positions[static_cast<size_t>(i)];
      ranked.emplace_back(position < budget.keep || i >= rows - budget.recent,
                          Score(group, position), position);
    }
    std::sort(ranked.rbegin(), ranked.rend());
    Kept left = {.any = true, .until = end(), .positions = {}, .ordered = false};
    for (int64_t i = 0; i < std::min(budget.size, rows); ++i) {
      left.positions.push_back(std::get<2>(ranked[static_cast<size_t>(i)]));
    }
    std::sort(left.positions.begin(), left.positions.end());
    kept[group] = std::move(left);
    for (Store& store : stores) {
      if (store.group != static_cast<int>(group)) continue;
      const int64_t now = Row(store.group, end());
      store.held.clear();
      for (int64_t b = FirstSeen(store, now) / 64; b < CeilBlocks(now); ++b) store.held.insert(b);
    }
  }

 private:
  // Of the blocks of both, the head and those from which the end is reached without a gap.
  static BlockSet Reachable(const BlockSet& a, const BlockSet& b, int64_t head, int64_t end) {
    BlockSet reachable;
    const auto has = [&](int64_t block) { return a.contains(block) || b.contains(block); };
    for (int64_t block = end - 1; has(block); --block) reachable.insert(block);
    for (int64_t block = 0; block < head; ++block) {
      if (has(block)) reachable.insert(block);
    }
    return reachable;
  }

  float Score(size_t group, Position position) const {
    const RowScore score = BudgetOf(group).score;
    if (score == RowScore::kStreaming) return static_cast<float>(position);
    float sum = 0;
    const Token token = tokens[static_cast<size_t>(position)];
    for (const int layer : groups[group]) {
      const KvLayout& layout = spec->layers[static_cast<size_t>(layer)].layout;
      const KvRows row = RowsOf(layout, layer, {&token, 1});
      float norm = 0;
      for (int head = 0; head < layout.kv_heads; ++head) {
        norm += RowNorm(std::span(row.keys).subspan(static_cast<size_t>(head) * layout.key_dim,
                                                    static_cast<size_t>(layout.key_dim)));
      }
      sum += score == RowScore::kKnormHigh ? norm : -norm;
    }
    return sum;
  }
};

// What a cache gives back for a token: its row, through the codecs of a block.
class StoredRows {
 public:
  const KvRows& Of(const KvBlockLayout& layout, const KvLayout& shape, int layer, Token token) {
    const auto key = std::tuple(layer, token, layout.key_codec.name(), layout.value_codec.name());
    auto& rows = rows_[key];
    if (rows.keys.empty()) {
      rows = RowsOf(shape, layer, {&token, 1});
      std::vector<std::byte> block(layout.BlockBytes());
      EncodeRow(layout, block.data(), 0, rows.keys, rows.values);
      DecodeKey(layout, block.data(), 0, rows.keys);
      DecodeValue(layout, block.data(), 0, rows.values);
    }
    return rows;
  }

 private:
  std::map<std::tuple<int, Token, std::string, std::string>, KvRows> rows_;
};

}  // namespace kvasir::kv_testing

#endif  // KVASIR_KV_KV_NAIVE_MODEL_H_
