#include "kvasir/backend/panel_packer.h"

#include <algorithm>

#include "kvasir/base/file.h"

namespace kvasir {
namespace {

// Of packed weights: large enough that giving pages back costs nothing, small beside any model.
constexpr size_t kReleaseBytes = size_t{4} << 20;

// The format whose elements a float format has.
WeightFormat ElementsOf(WeightFormat format) {
  return format == WeightFormat::kBf16Dot ? WeightFormat::kBf16 : format;
}

}  // namespace

PanelPacker::PanelPacker(const WeightTensor& weights, PackedMatrix* matrix)
    : weights_(weights),
      matrix_(matrix),
      keeps_codes_(KeepsCodes(weights, matrix->format())),
      is_raw_(weights.is_raw && ElementsOf(matrix->format()) == weights.stored_format),
      row_(keeps_codes_ || is_raw_ ? 0 : static_cast<size_t>(matrix->inputs())) {}

PanelPacker::~PanelPacker() {
  if (first_held_ >= 0) Release(next_);
}

void PanelPacker::Pack(int64_t panel) {
  if (first_held_ < 0) first_held_ = panel;
  next_ = panel + 1;
  const int64_t begin = panel * kPanelOutputs;
  const int64_t end = std::min(begin + kPanelOutputs, matrix_->outputs());
  if (is_raw_) {
    const size_t row_bytes = weights_.source[0].size() / static_cast<size_t>(matrix_->outputs());
    matrix_->SetPanel(panel, weights_.source[0].data() + static_cast<size_t>(begin) * row_bytes,
                      row_bytes);
  } else {
    for (int64_t output = begin; output < end; ++output) {
      if (keeps_codes_) {
        weights_.read_codes(output, &codes_);
        matrix_->SetCodedRow(output, codes_);
      } else {
        weights_.read_row(output, row_.data());
        matrix_->SetRow(output, row_.data());
      }
    }
  }
  if (static_cast<size_t>(next_ - first_held_) * matrix_->panel_bytes() >= kReleaseBytes) {
    Release(next_);
  }
}

void PanelPacker::Release(int64_t end_panel) {
  if (!weights_.is_mapped || weights_.is_scattered) return;
  const auto rows = static_cast<size_t>(matrix_->outputs());
  const size_t begin = static_cast<size_t>(first_held_) * kPanelOutputs;
  const size_t end = std::min(static_cast<size_t>(end_panel) * kPanelOutputs, rows);
  for (const std::span<const std::byte> source : weights_.source) {
    const size_t row_bytes = source.size() / rows;
    ReleasePages(source.subspan(begin * row_bytes, (end - begin) * row_bytes));
  }
  first_held_ = end_panel;
}

}  // namespace kvasir
