#include "kvasir/backend/ordered_inputs.h"

#include <algorithm>

#include "kvasir/backend/for_rows.h"
#include "kvasir/base/scratch_vector.h"

namespace kvasir {

ConstFloatRows OrderedInputs::Gather(ConstFloatRows x, std::span<OrderedPart> parts) {
  struct Run {
    OrderedPart part;
    int64_t at;
  };
  std::vector<Run> runs;
  sources_.clear();
  for (OrderedPart& part : parts) {
    const auto known = std::find_if(runs.begin(), runs.end(), [&](const Run& run) {
      return run.part.order == part.order && run.part.row_begin == part.row_begin &&
             run.part.rows == part.rows;
    });
    const auto at = known == runs.end() ? static_cast<int64_t>(sources_.size()) : known->at;
    if (known == runs.end()) {
      runs.push_back({part, at});
      for (int64_t i = 0; i < part.rows; ++i) sources_.push_back({part.order, part.row_begin + i});
    }
    part.row_begin = at;
  }
  const auto rows = static_cast<int64_t>(sources_.size());
  GrowScratch(sources_.size() * static_cast<size_t>(x.cols), &gathered_);
  ForRows(pool_, rows, x.cols, [&](int64_t i) {
    const Source& source = sources_[static_cast<size_t>(i)];
    const float* const from = x.row(source.row);
    float* const to = gathered_.data() + i * x.cols;
    if (source.order == nullptr) {
      std::copy_n(from, x.cols, to);
    } else {
      std::transform(source.order->begin(), source.order->end(), to,
                     [from](int32_t input) { return from[input]; });
    }
  });
  return {gathered_.data(), rows, x.cols, x.cols};
}

}  // namespace kvasir
