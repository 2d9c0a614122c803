#include "kvasir/backend/matmul_inputs.h"

#include "kvasir/backend/for_rows.h"
#include "kvasir/base/stream_copy.h"
#include "kvasir/tensor/coded_row.h"

namespace kvasir {
namespace {

// A row of 14,336 inputs in either form. One thread copies, and copies of more were not measured.
constexpr size_t kMostCopiedBytes = size_t{64} << 10;

}  // namespace

void InputForms::Add(WeightFormat format) {
  rounded |= RoundsInputs(format);
  codes |= QuantizesInputs(format);
  half_sums |= SubScaleInputs(format) < kQuantGroup;
}

MatmulInputs::Places MatmulInputs::Lay() const {
  Places places;
  const auto place = [&](bool is_made, int64_t row_bytes) {
    const size_t begin = places.end;
    const auto bytes = static_cast<size_t>(is_made ? rows_ * row_bytes : 0);
    places.end += (bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
    return begin;
  };
  places.rounded = place(forms_.rounded, KernelTable::RoundedBytes(inputs_));
  places.codes = place(forms_.codes, inputs_);
  places.scales = place(forms_.codes, groups_ * static_cast<int64_t>(sizeof(float)));
  places.sums = place(forms_.codes, groups_ * static_cast<int64_t>(sizeof(int32_t)));
  places.half_sums = place(forms_.half_sums, groups_ * static_cast<int64_t>(sizeof(int32_t)));
  return places;
}

void MatmulInputs::MakeRow(const float* x, int64_t row) {
  std::byte* const base = own_.data();
  if (forms_.rounded) {
    const int64_t row_bytes = KernelTable::RoundedBytes(inputs_);
    kernels_.round_rows(x, inputs_, 1, inputs_, base + places_.rounded + row * row_bytes);
  }
  if (!forms_.codes) return;
  auto* const codes = At<int8_t>(base, places_.codes, row, inputs_);
  kernels_.quantize_rows(x, inputs_, 1, inputs_, codes,
                         At<float>(base, places_.scales, row, groups_),
                         At<int32_t>(base, places_.sums, row, groups_));
  if (!forms_.half_sums) return;
  auto* const half_sums = At<int32_t>(base, places_.half_sums, row, groups_);
  for (int64_t group = 0; group < groups_; ++group) {
    int32_t sum = 0;
    for (int64_t k = 0; k < kQuantGroup / 2; ++k) sum += codes[group * kQuantGroup + k];
    half_sums[group] = sum;
  }
}

void MatmulInputs::Make(ConstFloatRows x, const InputForms& forms) {
  forms_ = forms;
  rows_ = x.rows;
  inputs_ = x.cols;
  groups_ = x.cols / kQuantGroup;
  places_ = Lay();
  if (places_.end == 0) return;
  if (own_.size() < places_.end) own_.resize(places_.end);
  ForRows(pool_, x.rows, x.cols, [&](int64_t i) { MakeRow(x.row(i), i); });
  is_copied_ = kCanStreamCopy && pool_.threads() > 1 && places_.end <= kMostCopiedBytes &&
               !IsWorthForking(pool_, x.rows, x.cols);
  if (!is_copied_) return;
  if (copy_.size() < places_.end) copy_.resize(places_.end);
  StreamCopy(own_.data(), places_.end, copy_.data());
}

void MatmulInputs::Give(int thread, int64_t row, MatmulArgs* args) const {
  const bool is_own = thread == 0 || !is_copied_;
  const std::byte* const base = (is_own ? own_ : copy_).data();
  if (forms_.rounded) {
    args->x_rounded = base + places_.rounded + row * KernelTable::RoundedBytes(inputs_);
  }
  if (forms_.codes) {
    args->x_codes = At<const int8_t>(base, places_.codes, row, inputs_);
    args->x_scales = At<const float>(base, places_.scales, row, groups_);
    args->x_sums = At<const int32_t>(base, places_.sums, row, groups_);
  }
  if (forms_.half_sums)
    args->x_half_sums = At<const int32_t>(base, places_.half_sums, row, groups_);
}

}  // namespace kvasir
