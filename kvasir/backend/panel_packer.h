// PanelPacker: fills panels of a PackedMatrix from a stored tensor, the fastest way the two allow.
// Deliberately one per thread: it owns the row it decodes into.
#ifndef KVASIR_BACKEND_PANEL_PACKER_H_
#define KVASIR_BACKEND_PANEL_PACKER_H_

#include <cstdint>
#include <vector>

#include "kvasir/tensor/packed_matrix.h"
#include "kvasir/tensor/weight_tensor.h"

namespace kvasir {

class PanelPacker {
 public:
  // Both are borrowed and have the same shape.
  PanelPacker(const WeightTensor& weights, PackedMatrix* matrix);
  // Gives the last pages of the file back.
  ~PanelPacker();
  PanelPacker(const PanelPacker&) = delete;
  PanelPacker& operator=(const PanelPacker&) = delete;

  // Panels come in ascending order. Pages of the file that are done with are given back now and
  // then, so that a model never lies in memory twice; not those of scattered rows.
  void Pack(int64_t panel);

 private:
  void Release(int64_t end_panel);

  const WeightTensor& weights_;
  PackedMatrix* const matrix_;
  const bool keeps_codes_;
  const bool is_raw_;
  int64_t first_held_ = -1;  // panel whose pages have not been given back
  int64_t next_ = 0;
  std::vector<float> row_;
  CodedRow codes_;
};

}  // namespace kvasir

#endif  // KVASIR_BACKEND_PANEL_PACKER_H_
