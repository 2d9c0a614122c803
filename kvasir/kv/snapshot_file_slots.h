// Clears the slots of a block that hold no row, so that a file is a function of its rows.
// Deliberately slow and general: one block per layer and sequence needs it.
#ifndef KVASIR_KV_SNAPSHOT_FILE_SLOTS_H_
#define KVASIR_KV_SNAPSHOT_FILE_SLOTS_H_

#include <cstddef>
#include <cstdint>

#include "kvasir/tensor/kv_layout.h"

namespace kvasir {

// Zeroes everything in `block` that belongs to the slots [first_slot, 64); others stay as they are,
// bit for bit. REQUIRES: 0 <= first_slot <= 64.
void ClearSlots(const KvBlockLayout& layout, std::byte* block, int first_slot);

}  // namespace kvasir

#endif  // KVASIR_KV_SNAPSHOT_FILE_SLOTS_H_
