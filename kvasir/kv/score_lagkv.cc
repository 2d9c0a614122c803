// LagKV: rows that stand out against the partition after theirs.
#include <cmath>
#include <numeric>
#include <vector>

#include "kvasir/kv/score_kinds.h"
#include "kvasir/kv/score_rows.h"

namespace kvasir {
namespace {

constexpr int64_t kPartition = 128;  // rows; the paper's lag size
using PartitionScores = std::array<float, kPartition>;

// Keys and values of a partition.
struct Partition {
  std::vector<float> keys;    // [128][kv_heads * key_dim]
  std::vector<float> values;  // [128][kv_heads * value_dim]

  // rows: of the layer, 128 of them.
  void Load(RowReader& reader, const KvLayout& layout, std::span<const int64_t> rows) {
    const auto key_floats = static_cast<size_t>(layout.kv_heads * layout.key_dim);
    const auto value_floats = static_cast<size_t>(layout.kv_heads * layout.value_dim);
    keys.resize(key_floats * rows.size());
    values.resize(value_floats * rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      reader.Key(rows[i], std::span(keys).subspan(i * key_floats, key_floats));
      reader.Value(rows[i], std::span(values).subspan(i * value_floats, value_floats));
    }
  }
};

// One head's part of a partition's keys or values: rows of `dim` channels, `stride` floats apart.
struct HeadRows {
  const float* data;
  int64_t stride;
  int64_t dim;

  const float* row(int64_t i) const { return data + i * stride; }
};

HeadRows HeadOf(const std::vector<float>& rows, int head, int dim) {
  const int64_t stride = static_cast<int64_t>(rows.size()) / kPartition;
  return {rows.data() + static_cast<int64_t>(head) * dim, stride, dim};
}

// Adds to each row of `part` its softmax, over the partition, of the standard deviation of its
// channels, each normalised to the range that the channel has in `reference`.
void AddOutstanding(const HeadRows& part, const HeadRows& reference, PartitionScores& scores) {
  const int64_t dim = part.dim;
  std::vector<float> low(reference.row(0), reference.row(0) + dim);
  std::vector<float> scale = low, channels(static_cast<size_t>(dim));
  for (int64_t i = 1; i < kPartition; ++i) {
    const float* const row = reference.row(i);
    for (int64_t d = 0; d < dim; ++d) low[d] = std::min(low[d], row[d]);
    for (int64_t d = 0; d < dim; ++d) scale[d] = std::max(scale[d], row[d]);
  }
  // A channel without a range says nothing about a row: it counts as 0.
  for (int64_t d = 0; d < dim; ++d) scale[d] = scale[d] > low[d] ? 1.0f / (scale[d] - low[d]) : 0;

  PartitionScores deviations;
  for (int64_t i = 0; i < kPartition; ++i) {
    const float* const row = part.row(i);
    for (int64_t d = 0; d < dim; ++d) channels[d] = (row[d] - low[d]) * scale[d];
    const float mean =
        LaneSum(dim, [&](int64_t d) { return channels[d]; }) / static_cast<float>(dim);
    const float squares =
        LaneSum(dim, [&](int64_t d) { return (channels[d] - mean) * (channels[d] - mean); });
    deviations[i] = std::sqrt(squares / static_cast<float>(std::max<int64_t>(dim - 1, 1)));
  }
  Softmax(deviations);
  for (int64_t i = 0; i < kPartition; ++i) scores[i] += deviations[i];
}

// Adds rank / 128 of each row's score to scores[rows[i]]; among equals the later ranks higher.
void AddRanks(const PartitionScores& outstanding, std::span<const int64_t> rows,
              std::span<float> scores) {
  std::array<int, kPartition> order;
  std::iota(order.begin(), order.end(), 0);
  // NaN ranks lowest, so that the order is one.
  const auto below = [&](int a, int b) {
    if (std::isnan(outstanding[a]) || std::isnan(outstanding[b])) {
      return std::isnan(outstanding[a]) && !std::isnan(outstanding[b]);
    }
    return outstanding[a] < outstanding[b];
  };
  std::stable_sort(order.begin(), order.end(), below);
  for (int rank = 0; rank < kPartition; ++rank) {
    scores[rows[order[rank]]] += static_cast<float>(rank) / kPartition;
  }
}

// Rows in order of position: after an eviction they are not stored so.
std::vector<int64_t> RowsByPosition(std::span<const Position> positions) {
  std::vector<int64_t> rows(positions.size());
  std::iota(rows.begin(), rows.end(), 0);
  std::sort(rows.begin(), rows.end(),
            [&](int64_t a, int64_t b) { return positions[a] < positions[b]; });
  return rows;
}

}  // namespace

void AddLagKv(const ScoredLayer& layer, std::span<float> scores) {
  const KvLayout& layout = layer.spec->layout;
  const std::vector<int64_t> order = RowsByPosition(layer.positions);
  const std::span<const int64_t> rows = order;
  const int64_t first = std::clamp<int64_t>(layer.spec->retention.keep, 0, layer.rows());
  // Partitions that have a whole one after them.
  const int64_t ranked = std::max<int64_t>((layer.rows() - first) / kPartition - 1, 0);
  for (int64_t i = 0; i < layer.rows(); ++i) {
    const bool has_rank = i >= first && i < first + ranked * kPartition;
    if (!has_rank) scores[order[i]] += static_cast<float>(layout.kv_heads);
  }
  if (ranked == 0) return;

  const auto rows_of = [&](int64_t i) { return rows.subspan(first + i * kPartition, kPartition); };
  RowReader reader(layer);
  Partition part, next;
  next.Load(reader, layout, rows_of(0));
  for (int64_t i = 0; i < ranked; ++i) {
    std::swap(part, next);
    next.Load(reader, layout, rows_of(i + 1));
    for (int head = 0; head < layout.kv_heads; ++head) {
      PartitionScores outstanding = {};
      AddOutstanding(HeadOf(part.keys, head, layout.key_dim),
                     HeadOf(next.keys, head, layout.key_dim), outstanding);
      AddOutstanding(HeadOf(part.values, head, layout.value_dim),
                     HeadOf(next.values, head, layout.value_dim), outstanding);
      AddRanks(outstanding, rows_of(i), scores);
    }
  }
}

}  // namespace kvasir
