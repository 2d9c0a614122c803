#include "kvasir/convert/latent_stacks.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "kvasir/base/system_info.h"
#include "kvasir/convert/remade_tensor.h"
#include "kvasir/tensor/tensor_view.h"

namespace kvasir {
namespace {

constexpr std::string_view kBoth = ".kv_b_proj.weight";

// Matrices of heads that were decoded last: a thread reads the rows of one after the other.
class HeadCache {
 public:
  using Rows = std::shared_ptr<const std::vector<float>>;

  explicit HeadCache(size_t capacity) : heads_(capacity) {}

  // THREADS: any.
  template <typename Decode>
  Rows Get(size_t tensor, int64_t head, const Decode& decode) {
    {
      const std::lock_guard lock(mutex_);
      for (const Head& known : heads_) {
        if (known.rows != nullptr && known.tensor == tensor && known.head == head) {
          return known.rows;
        }
      }
    }
    const Rows rows = decode();
    const std::lock_guard lock(mutex_);
    heads_[next_] = {tensor, head, rows};
    next_ = (next_ + 1) % heads_.size();
    return rows;
  }

 private:
  struct Head {
    size_t tensor = 0;
    int64_t head = 0;
    Rows rows;
  };

  std::mutex mutex_;
  std::vector<Head> heads_;
  size_t next_ = 0;
};

// The heads of a stored tensor.
struct StoredHeads {
  ReadRow read_row;
  size_t tensor;      // a number of its own
  int64_t head_rows;  // of each head
  int64_t columns;
};

// Of each head the first `rows`, with rows as columns.
ReadRow ColumnsOfHeads(StoredHeads stored, int64_t rows, std::shared_ptr<HeadCache> cache) {
  return [stored = std::move(stored), rows, cache = std::move(cache)](int64_t row, float* out) {
    const int64_t head = row / stored.columns;
    const HeadCache::Rows decoded = cache->Get(stored.tensor, head, [&] {
      std::vector<float> values(static_cast<size_t>(rows * stored.columns));
      for (int64_t i = 0; i < rows; ++i) {
        stored.read_row(head * stored.head_rows + i, values.data() + i * stored.columns);
      }
      return std::make_shared<const std::vector<float>>(std::move(values));
    });
    for (int64_t i = 0; i < rows; ++i) {
      out[i] = (*decoded)[static_cast<size_t>(i * stored.columns + row % stored.columns)];
    }
  };
}

// Heads that all threads of a conversion work on at a time, and some.
std::shared_ptr<HeadCache> MakeHeadCache() {
  return std::make_shared<HeadCache>(2 * static_cast<size_t>(std::max(1, AvailableCores())));
}

}  // namespace

Result<std::vector<SourceTensor>> StackLatents(std::vector<SourceTensor> tensors,
                                               const ModelConfig& config) {
  const LatentConfig& latent = config.latent;
  const int64_t heads = config.num_attention_heads;
  const int64_t rank = latent.kv_rank;
  const int64_t head_rows = latent.plain_dim + latent.value_dim;
  const std::shared_ptr<HeadCache> cache = MakeHeadCache();
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
    SourceTensor keys =
        Remade(tensor, {heads, rank, latent.plain_dim},
               ColumnsOfHeads({stored, result.size(), head_rows, rank}, latent.plain_dim, cache));
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

std::vector<SourceTensor> JoinLatents(std::vector<SourceTensor> tensors,
                                      const ModelConfig& config) {
  constexpr std::string_view kKeys = ".embed_q.weight";
  constexpr std::string_view kValues = ".unembed_out.weight";
  const LatentConfig& latent = config.latent;
  const std::shared_ptr<HeadCache> cache = MakeHeadCache();
  std::map<std::string, const SourceTensor*> values;  // by module
  for (const SourceTensor& tensor : tensors) {
    if (tensor.name.ends_with(kValues)) {
      values[tensor.name.substr(0, tensor.name.size() - kValues.size())] = &tensor;
    }
  }
  std::vector<SourceTensor> result;
  for (const SourceTensor& tensor : tensors) {
    if (tensor.name.ends_with(kValues)) continue;
    if (!tensor.name.ends_with(kKeys)) {
      result.push_back(tensor);
      continue;
    }
    const std::string module = tensor.name.substr(0, tensor.name.size() - kKeys.size());
    const int64_t head_rows = latent.plain_dim + latent.value_dim;
    const ReadRow keys =
        ColumnsOfHeads({tensor.rows.read_row, result.size(), latent.kv_rank, latent.plain_dim},
                       latent.kv_rank, cache);
    SourceTensor both =
        Remade(tensor, {config.num_attention_heads * head_rows, latent.kv_rank},
               [keys, of_values = values.at(module)->rows.read_row, head_rows,
                plain = latent.plain_dim, count = latent.value_dim](int64_t row, float* out) {
                 const int64_t head = row / head_rows;
                 const int64_t i = row % head_rows;
                 if (i < plain) return keys(head * plain + i, out);
                 of_values(head * count + i - plain, out);
               });
    both.name = module + std::string(kBoth);
    result.push_back(std::move(both));
  }
  return result;
}

}  // namespace kvasir
