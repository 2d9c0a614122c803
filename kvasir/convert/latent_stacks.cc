#include "kvasir/convert/latent_stacks.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "kvasir/convert/remade_tensor.h"
#include "kvasir/tensor/tensor_view.h"

namespace kvasir {
namespace {

constexpr std::string_view kBoth = ".kv_b_proj.weight";

// A head's matrix of a tensor, as the thread at hand read it last: rows come one after the other.
struct LastHead {
  uint64_t tensor = 0;
  int64_t head = -1;
  std::vector<float> rows;
};

// Of each head of [heads * head_rows, columns] the first `rows`, with rows as columns.
ReadRow ColumnsOfHeads(ReadRow stored, int64_t head_rows, int64_t rows, int64_t columns) {
  static std::atomic<uint64_t> tensors = 0;
  return [stored = std::move(stored), head_rows, rows, columns, tensor = ++tensors](int64_t row,
                                                                                    float* out) {
    thread_local LastHead last;
    const int64_t head = row / columns;
    if (last.tensor != tensor || last.head != head) {
      last = {tensor, head, std::vector<float>(static_cast<size_t>(rows * columns))};
      for (int64_t i = 0; i < rows; ++i) {
        stored(head * head_rows + i, last.rows.data() + i * columns);
      }
    }
    for (int64_t i = 0; i < rows; ++i) {
      out[i] = last.rows[static_cast<size_t>(i * columns + row % columns)];
    }
  };
}

}  // namespace

Result<std::vector<SourceTensor>> StackLatents(std::vector<SourceTensor> tensors,
                                               const ModelConfig& config) {
  const LatentConfig& latent = config.latent;
  const int64_t heads = config.num_attention_heads;
  const int64_t rank = latent.kv_rank;
  const int64_t head_rows = latent.plain_dim + latent.value_dim;
  std::vector<SourceTensor> result;
  for (SourceTensor& tensor : tensors) {
    if (rank == 0 || !tensor.name.ends_with(kBoth)) {
      result.push_back(std::move(tensor));
      continue;
    }
    const std::vector<int64_t> wanted = {heads * head_rows, rank};
    if (tensor.shape != wanted || !tensor.rows.read_row) {
      return Error{ErrorCode::kCorrupt, "tensor '" + tensor.name + "' is no matrix " +
                                            ShapeString(wanted) + " but " +
                                            ShapeString(tensor.shape)};
    }
    const std::string module = tensor.name.substr(0, tensor.name.size() - kBoth.size());
    const ReadRow stored = tensor.rows.read_row;
    SourceTensor keys = Remade(tensor, {heads, rank, latent.plain_dim},
                               ColumnsOfHeads(stored, head_rows, latent.plain_dim, rank));
    keys.name = module + ".embed_q.weight";
    SourceTensor values = Remade(tensor, {heads, latent.value_dim, rank},
                                 [stored, head_rows, skipped = latent.plain_dim,
                                  count = latent.value_dim](int64_t row, float* out) {
                                   stored(row / count * head_rows + skipped + row % count, out);
                                 });
    values.name = module + ".unembed_out.weight";
    result.push_back(std::move(keys));
    result.push_back(std::move(values));
  }
  return result;
}

}  // namespace kvasir
