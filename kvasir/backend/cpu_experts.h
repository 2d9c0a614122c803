// Mixtures of experts on the CPU: which experts a row goes through, and the rows of a step grouped
// by expert, so that the weights of each are read once.
// Deliberately no matmul: cpu_backend.cc runs those that the plan lists.
#ifndef KVASIR_BACKEND_CPU_EXPERTS_H_
#define KVASIR_BACKEND_CPU_EXPERTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvasir/backend/backend.h"
#include "kvasir/kernels/kernels.h"

namespace kvasir {

// A matmul of the rows [row_begin, row_begin + rows) of its input; job.out holds these alone.
struct RowsMatmul {
  MatmulJob job;
  int64_t row_begin = 0;
  int64_t rows = 0;
};

// Row `row` of Backend::Route.
void RouteRow(const KernelTable& kernels, const RouteArgs& args, int64_t row);

// Every (row, expert) pair of a step is one row here, sorted by expert, then by row.
struct ExpertPlan {
  ConstFloatRows x;             // [pairs, hidden]
  FloatRows gate, up;           // [pairs, intermediate]
  std::vector<RowsMatmul> in;   // from x to gate and up
  std::vector<RowsMatmul> out;  // from gate to what SumRow reads
};

class CpuExperts {
 public:
  // Copies rows together. The plan is valid until the next call.
  const ExpertPlan& Gather(const ExpertsArgs& args);
  // Once the plan's matmuls have run. THREADS: different rows at the same time.
  void SumRow(const ExpertsArgs& args, int64_t row) const;
  size_t scratch_bytes() const;
  // Upper bound of it for so many pairs of a row and an expert.
  static size_t Bound(int64_t pairs, int64_t hidden, int64_t intermediate);

 private:
  void SortPairs(const ExpertsArgs& args);

  ExpertPlan plan_;
  std::vector<int64_t> begins_;  // [experts + 1] first pair of each expert
  std::vector<int64_t> places_;  // [rows * per_row] where that pair lies
  std::vector<float> x_, gate_, up_, down_;
};

}  // namespace kvasir

#endif  // KVASIR_BACKEND_CPU_EXPERTS_H_
