// Which rows of a layer can be read at all, for interfaces that check instead of REQUIRE.
// Deliberately without what a query may see: that is KvSequence::Visible.
#ifndef KVASIR_KV_HELD_ROWS_H_
#define KVASIR_KV_HELD_ROWS_H_

#include <cstdint>

#include "kvasir/base/result.h"
#include "kvasir/kv/kv_sequence.h"

namespace kvasir {

// ERRORS: kInvalidArgument if the layer does not exist or has no rows, its own or another layer's.
Status CheckLayerHasRows(const KvCacheSpec& spec, int64_t layer);
// ERRORS: kInvalidArgument unless all rows [begin, begin + rows) of the layer can be read, kept
// head rows or later ones, reserved ones included. REQUIRES: the layer has rows.
Status CheckHeld(const KvSequence& sequence, int layer, int64_t begin, int64_t rows);

}  // namespace kvasir

#endif  // KVASIR_KV_HELD_ROWS_H_
