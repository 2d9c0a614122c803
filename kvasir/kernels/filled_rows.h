// The rows of a tile that see something of a block, in runs of neighbours: what value sums walk.
// Deliberately without the height of tiles, which every format chooses.
#ifndef KVASIR_KERNELS_FILLED_ROWS_H_
#define KVASIR_KERNELS_FILLED_ROWS_H_

#include <cstdint>

#include "kvasir/kernels/kernels.h"

namespace kvasir {

class FilledRows {
 public:
  explicit FilledRows(const AccumulateTileArgs& args) : args_(args) {}

  // Rows left of the run that row() is in; 0 behind the last run.
  int64_t Left() {
    if (row_ == end_) {
      while (row_ < args_.rows && !IsFilled(row_)) ++row_;
      end_ = row_;
      while (end_ + kTogether <= args_.rows && AreFilled(end_)) end_ += kTogether;
      while (end_ < args_.rows && IsFilled(end_)) ++end_;
    }
    return end_ - row_;
  }
  int64_t row() const { return row_; }
  // REQUIRES: rows <= Left().
  void Skip(int64_t rows) { row_ += rows; }

 private:
  // Rows that are looked at together, without a jump for each.
  static constexpr int64_t kTogether = 16;

  bool IsFilled(int64_t row) const { return args_.begin[row] < args_.end[row]; }
  bool AreFilled(int64_t first) const {
    bool all = true;
    for (int64_t row = first; row < first + kTogether; ++row) all &= IsFilled(row);
    return all;
  }

  const AccumulateTileArgs& args_;
  int64_t row_ = 0;
  int64_t end_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_KERNELS_FILLED_ROWS_H_
