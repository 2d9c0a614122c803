// A picture of a KvBlockMap: which blocks a batch holds, in which codec, shared by whom.
// Deliberately a text of SVG without scripts or fonts of its own: any browser shows it.
#ifndef KVASIR_KV_BLOCK_MAP_SVG_H_
#define KVASIR_KV_BLOCK_MAP_SVG_H_

#include <string>

#include "kvasir/kv/block_map.h"

namespace kvasir {

// One line per sequence and group of layers that look alike, one square per block: its colour is
// the codec, its shade the number of sequences that reference it. With legend and sizes; names and
// metadata are escaped.
std::string BlockMapSvg(const KvBlockMap& map);

}  // namespace kvasir

#endif  // KVASIR_KV_BLOCK_MAP_SVG_H_
