// The rows of a tensor, read, encoded and written in batches: the rows of a batch by all threads.
// Deliberately ignorant of formats and files: what reads, encodes and writes is the caller's.
#ifndef KVASIR_CONVERT_ROW_BATCHES_H_
#define KVASIR_CONVERT_ROW_BATCHES_H_

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/base/thread_pool.h"
#include "kvasir/convert/weight_encoder.h"

namespace kvasir {

struct RowBatches {
  int64_t rows = 0;      // at least one
  int64_t columns = 0;   // at least one
  size_t row_bytes = 0;  // encoded
  bool must_be_finite = false;
};

// Whether a tensor's numbers are ones that its type can hold.
enum class NumbersFit { kAll, kNotFinite, kBeyondType };

// read(row, floats); encode(row, floats, bytes) returns whether the numbers fit; write(bytes) gets
// the rows in their order, many at a time. Ends with the first batch that has numbers that do not
// fit, which is not written. ERRORS: those of write.
template <typename Read, typename Encode, typename Write>
Result<NumbersFit> EncodeRowBatches(ThreadPool* pool, const RowBatches& shape, const Read& read,
                                    const Encode& encode, const Write& write) {
  // Of floats decoded at a time: large enough to keep threads busy, small beside any model.
  constexpr int64_t kBatchNumbers = int64_t{4} << 20;
  const int64_t batch = std::clamp<int64_t>(kBatchNumbers / shape.columns, 1, shape.rows);
  std::vector<std::byte> bytes(static_cast<size_t>(batch) * shape.row_bytes);
  std::atomic<bool> fits = true;
  std::atomic<bool> is_finite = true;
  for (int64_t first = 0; first < shape.rows; first += batch) {
    const auto count = static_cast<size_t>(std::min(batch, shape.rows - first));
    pool->For(count, [&](size_t begin, size_t end) {
      std::vector<float> row(static_cast<size_t>(shape.columns));
      for (size_t i = begin; i < end; ++i) {
        const int64_t index = first + static_cast<int64_t>(i);
        read(index, row.data());
        if (shape.must_be_finite && !AllFinite(row)) is_finite = false;
        if (!encode(index, row.data(), bytes.data() + i * shape.row_bytes)) fits = false;
      }
    });
    if (!is_finite) return NumbersFit::kNotFinite;
    if (!fits) return NumbersFit::kBeyondType;
    KVASIR_TRY_OK(write(std::span<const std::byte>(bytes).first(count * shape.row_bytes)));
  }
  return NumbersFit::kAll;
}

}  // namespace kvasir

#endif  // KVASIR_CONVERT_ROW_BATCHES_H_
