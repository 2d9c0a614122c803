#include "kvasir/backend/cpu_kv_rows.h"

#include <algorithm>

namespace kvasir {
namespace {

// What every part of a step's encoding reads.
struct Encoding {
  const KernelTable& kernels;
  ConstFloatRows keys;
  ConstFloatRows values;
};

// Rows of one run that lie in one block.
struct BlockRows {
  int64_t step_row;
  int64_t count;
  int64_t slot;
  std::byte* block;
};

// Calls body(block index, rows) for each part of the run's rows [begin, end) that is in one block
// of `view`.
template <typename Body>
void ForEachBlock(const KvRun& run, const KvBlocksView& view, int64_t begin, int64_t end,
                  const Body& body) {
  for (int64_t row = begin; row < end;) {
    const int64_t slot = row % kBlockTokens;
    const int64_t count = std::min(end - row, kBlockTokens - slot);
    body(row / kBlockTokens,
         BlockRows{run.step_row + row - run.first_row, count, slot, view.block_of(row)});
    row += count;
  }
}

void EncodeHeads(const Encoding& step, const KvBlockLayout& layout, const BlockRows& rows,
                 int64_t head_begin, int64_t head_end) {
  for (int64_t head = head_begin; head < head_end; ++head) {
    if (layout.StoresKeys()) {
      step.kernels.ForCodec(layout.key_codec)
          .encode_keys({.rows = step.keys.row(rows.step_row) + head * layout.key_dim,
                        .row_stride = step.keys.stride,
                        .count = rows.count,
                        .dim = layout.key_dim,
                        .slot = rows.slot,
                        .plane = rows.block + head * layout.KeyHeadBytes(),
                        .codec = layout.key_codec});
    }
    step.kernels.ForCodec(layout.value_codec)
        .encode_values(
            {.rows = step.values.row(rows.step_row) + head * layout.value_dim,
             .row_stride = step.values.stride,
             .count = rows.count,
             .dim = layout.value_dim,
             .slot = rows.slot,
             .plane = rows.block + layout.KeyPlaneBytes() + head * layout.ValueHeadBytes(),
             .codec = layout.value_codec});
  }
}

// Both copies of a run's rows, of the heads [head_begin, head_end).
void EncodeRun(const Encoding& step, const KvLayout& layout, const KvRun& run, int64_t head_begin,
               int64_t head_end) {
  const int64_t end = run.first_row + run.rows;
  ForEachBlock(run, run.kv, run.first_row, end, [&](int64_t block, const BlockRows& rows) {
    EncodeHeads(step, layout.BlockAt(block), rows, head_begin, head_end);
  });
  if (run.recent.blocks.empty()) return;
  const KvBlockLayout recent = layout.RecentBlock();
  ForEachBlock(run, run.recent, std::max(run.first_row, run.recent.first_row()),
               std::min(end, run.recent.end_row()), [&](int64_t, const BlockRows& rows) {
                 EncodeHeads(step, recent, rows, head_begin, head_end);
               });
}

void WriteKeyNorms(const Encoding& step, const KvLayout& layout, const KvRun& run) {
  ForEachBlock(run, run.kv, run.first_row, run.first_row + run.rows,
               [&](int64_t block, const BlockRows& rows) {
                 auto* const norms =
                     reinterpret_cast<float*>(rows.block + layout.BlockAt(block).NormsOffset());
                 for (int64_t i = 0; i < rows.count; ++i) {
                   const float* const row = step.keys.row(rows.step_row + i);
                   float sum = 0;
                   for (int64_t head = 0; head < layout.kv_heads; ++head) {
                     sum += step.kernels.norm(row + head * layout.key_dim, layout.key_dim);
                   }
                   norms[rows.slot + i] = sum;
                 }
               });
}

}  // namespace

void EncodeKvRows(const KernelTable& kernels, ThreadPool& pool, const KvLayout& layout,
                  std::span<const KvRun> runs, ConstFloatRows keys, ConstFloatRows values) {
  const Encoding step = {kernels, keys, values};
  // Few rows are worth the threads as well: a key row of a dense format lies in as many cache lines
  // as it has dims, most of which have to come from memory.
  const auto heads = static_cast<size_t>(layout.kv_heads);
  pool.For(runs.size() * heads, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end;) {
      const size_t head = i % heads;
      const size_t count = std::min(heads - head, end - i);
      EncodeRun(step, layout, runs[i / heads], static_cast<int64_t>(head),
                static_cast<int64_t>(head + count));
      i += count;
    }
  });
  if (!layout.key_norms) return;
  for (const KvRun& run : runs) WriteKeyNorms(step, layout, run);
}

void EncodeKvHeads(const KernelTable& kernels, const KvLayout& layout, const KvRun& run,
                   ConstFloatRows keys, ConstFloatRows values, int64_t head_begin,
                   int64_t head_end) {
  EncodeRun({kernels, keys, values}, layout, run, head_begin, head_end);
}

void RecordQueryRows(const KvLayout& layout, std::span<const KvRun> runs, ConstFloatRows queries) {
  if (layout.observed_block < 0 || layout.query_floats == 0) return;
  const int64_t begin = layout.observed_block * kBlockTokens;
  const size_t offset = layout.BlockAt(layout.observed_block).QueriesOffset();
  for (const KvRun& run : runs) {
    const int64_t end = std::min(run.first_row + run.rows, begin + kBlockTokens);
    for (int64_t row = std::max(run.first_row, begin); row < end; ++row) {
      auto* const recorded = reinterpret_cast<float*>(run.kv.block_of(row) + offset);
      std::copy_n(queries.row(run.step_row + row - run.first_row), layout.query_floats,
                  recorded + (row - begin) * layout.query_floats);
    }
  }
}

}  // namespace kvasir
