#include "kvasir/backend/matmul_inputs.h"

#include <algorithm>

#include "kvasir/backend/for_rows.h"
#include "kvasir/base/scratch_vector.h"
#include "kvasir/base/stream_copy.h"
#include "kvasir/tensor/coded_row.h"

namespace kvasir {
namespace {

// A row of 14,336 inputs in either form. One thread copies, and copies of more were not measured.
constexpr size_t kMostCopiedBytes = size_t{64} << 10;
// 64 rows of 3,072 codes. Rows so many that they come in bands are read by who made them.
constexpr size_t kMostStreamedBytes = size_t{256} << 10;

}  // namespace

void InputForms::Add(WeightFormat format) {
  rounded |= RoundsInputs(format);
  codes |= QuantizesInputs(format);
  half_sums |= SubScaleInputs(format) < kQuantGroup;
}

MatmulInputs::Places MatmulInputs::Lay(int64_t rows) const {
  const int64_t groups = inputs_ / kQuantGroup;
  Places places;
  const auto place = [&](Form form, bool is_made, int64_t row_bytes) {
    if (!is_made) return;
    places.of[form] = {places.end, row_bytes};
    const auto bytes = static_cast<size_t>(rows * row_bytes);
    places.end += (bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
  };
  place(kRounded, forms_.rounded, KernelTable::RoundedBytes(inputs_));
  place(kCodes, forms_.codes, inputs_);
  place(kScales, forms_.codes, groups * static_cast<int64_t>(sizeof(float)));
  place(kSums, forms_.codes, groups * static_cast<int64_t>(sizeof(int32_t)));
  place(kHalfSums, forms_.half_sums, groups * static_cast<int64_t>(sizeof(int32_t)));
  return places;
}

void MatmulInputs::MakeRow(const float* x, const Places& places, int64_t row,
                           std::byte* base) const {
  if (forms_.rounded) {
    kernels_.round_rows(x, inputs_, 1, inputs_, At<std::byte>(base, places.of[kRounded], row));
  }
  if (!forms_.codes) return;
  auto* const codes = At<int8_t>(base, places.of[kCodes], row);
  kernels_.quantize_rows(x, inputs_, 1, inputs_, codes, At<float>(base, places.of[kScales], row),
                         At<int32_t>(base, places.of[kSums], row));
  if (!forms_.half_sums) return;
  auto* const half_sums = At<int32_t>(base, places.of[kHalfSums], row);
  for (int64_t group = 0; group < inputs_ / kQuantGroup; ++group) {
    int32_t sum = 0;
    for (int64_t k = 0; k < kQuantGroup / 2; ++k) sum += codes[group * kQuantGroup + k];
    half_sums[group] = sum;
  }
}

void MatmulInputs::MakeAlone(ConstFloatRows x) {
  GrowScratch(places_.end, &own_);
  for (int64_t i = 0; i < x.rows; ++i) MakeRow(x.row(i), places_, i, own_.data());
  callers_ = helpers_ = own_.data();
  if (!kCanStreamCopy || pool_.threads() == 1 || places_.end > kMostCopiedBytes) return;
  GrowScratch(places_.end, &copy_);
  StreamLines(own_.data(), places_.end, copy_.data());
  StreamFence();
  helpers_ = copy_.data();
}

void MatmulInputs::MakeTogether(ConstFloatRows x) {
  GrowScratch(places_.end, &own_);
  ForRows(pool_, x.rows, x.cols, [&](int64_t i) { MakeRow(x.row(i), places_, i, own_.data()); });
  callers_ = helpers_ = own_.data();
}

void MatmulInputs::StreamTogether(ConstFloatRows x) {
  const Places of_row = Lay(1);
  rows_of_.resize(static_cast<size_t>(pool_.threads()));
  for (AlignedVector<std::byte>& row : rows_of_) GrowScratch(of_row.end, &row);
  GrowScratch(places_.end, &copy_);
  const auto stream_row = [&](int64_t i, std::byte* row) {
    MakeRow(x.row(i), of_row, 0, row);
    for (int form = 0; form < kForms; ++form) {
      const Place& to = places_.of[form];
      StreamLines(row + of_row.of[form].begin, static_cast<size_t>(to.row_bytes),
                  At<std::byte>(copy_.data(), to, i));
    }
  };
  pool_.ForPieces(static_cast<size_t>(x.rows), {}, [&](int thread, const auto& take) {
    std::byte* const row = rows_of_[static_cast<size_t>(thread)].data();
    size_t begin = 0;
    size_t end = 0;
    while (take(&begin, &end)) {
      for (size_t i = begin; i < end; ++i) stream_row(static_cast<int64_t>(i), row);
    }
    StreamFence();
  });
  callers_ = helpers_ = copy_.data();
}

void MatmulInputs::Make(ConstFloatRows x, const InputForms& forms) {
  forms_ = forms;
  inputs_ = x.cols;
  places_ = Lay(x.rows);
  if (places_.end == 0) return;
  if (!IsWorthForking(pool_, x.rows, x.cols)) return MakeAlone(x);
  const bool are_lines = std::ranges::all_of(places_.of, [](const Place& place) {
    return place.row_bytes % static_cast<int64_t>(kCacheLineBytes) == 0;
  });
  // Rounded rows are four times the bytes of codes: streamed, decoding took up to a tenth longer.
  const bool streams =
      kCanStreamCopy && are_lines && !forms_.rounded && places_.end <= kMostStreamedBytes;
  streams ? StreamTogether(x) : MakeTogether(x);
}

size_t MatmulInputs::Bound(int64_t rows, int64_t inputs, int threads) {
  const int64_t sums = inputs / kQuantGroup * static_cast<int64_t>(sizeof(int32_t));
  // Scales, sums and half sums.
  const int64_t row_bytes = KernelTable::RoundedBytes(inputs) + inputs + 3 * sums;
  const auto all = static_cast<size_t>(rows * row_bytes) + kForms * kCacheLineBytes;
  // Copies for the helpers, and the rows that threads make before they stream them.
  const size_t copy = std::min(all, std::max(kMostCopiedBytes, kMostStreamedBytes));
  return all + copy +
         static_cast<size_t>(threads) * (static_cast<size_t>(row_bytes) + kForms * kCacheLineBytes);
}

size_t MatmulInputs::bytes() const {
  size_t bytes = own_.capacity() + copy_.capacity();
  for (const AlignedVector<std::byte>& row : rows_of_) bytes += row.capacity();
  return bytes;
}

void MatmulInputs::Give(int thread, int64_t row, MatmulArgs* args) const {
  const std::byte* const base = thread == 0 ? callers_ : helpers_;
  if (forms_.rounded) args->x_rounded = At<const std::byte>(base, places_.of[kRounded], row);
  if (forms_.codes) {
    args->x_codes = At<const int8_t>(base, places_.of[kCodes], row);
    args->x_scales = At<const float>(base, places_.of[kScales], row);
    args->x_sums = At<const int32_t>(base, places_.of[kSums], row);
  }
  if (forms_.half_sums) args->x_half_sums = At<const int32_t>(base, places_.of[kHalfSums], row);
}

}  // namespace kvasir
