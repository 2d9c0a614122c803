// What must hold of a block map from outside before sequences are made from it.
// Deliberately apart from the reading of bytes: these are the rules of the cache, not of a format.
#ifndef KVASIR_KV_SNAPSHOT_FILE_CHECK_H_
#define KVASIR_KV_SNAPSHOT_FILE_CHECK_H_

#include "kvasir/base/result.h"
#include "kvasir/kv/block_map.h"

namespace kvasir {

// OK if every sequence of `map` could have been saved by SaveSnapshots: block numbers exist and
// are all used, blocks have the size of their layout, and end where their sequence ends.
// REQUIRES: map.spec is valid, lists and budgets are those of the spec.
// ERRORS: kCorrupt, naming sequence, layer and field.
Status CheckBlockMap(const KvBlockMap& map);

}  // namespace kvasir

#endif  // KVASIR_KV_SNAPSHOT_FILE_CHECK_H_
