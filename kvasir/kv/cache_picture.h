// CachePicture: which blocks running sequences and a prefix tree hold and who shares them, small
// enough to be asked for every second while they work.
// Deliberately only structure, no tokens: whoever sees it learns nothing of what was said.
#ifndef KVASIR_KV_CACHE_PICTURE_H_
#define KVASIR_KV_CACHE_PICTURE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kvasir/base/token.h"
#include "kvasir/kv/kv_sequence.h"
#include "kvasir/kv/prefix_tree.h"

namespace kvasir {

// A plain value that outlives pool and tree.
struct CachePicture {
  // Layers whose blocks come and go together, because their layout and retention are the same. One
  // of them stands for all.
  struct LayerKind {
    std::vector<int> layers;
    std::string name;  // the retention's name, "recent copies" or "state"
  };
  // Consecutive blocks that are alike.
  struct Run {
    int64_t first_block = 0;  // block i: rows [64i, 64i + 64); a state: the block it comes after,
                              // or a place beside it where that has one
    int64_t blocks = 0;
    int shared_by = 0;    // sequences of this picture that hold them, this one included
    int codec = 0;        // of `codecs`
    bool in_use = false;  // by a running sequence; false: only kept to be found again
    uint32_t id = 0;      // equal: the same blocks, in whichever sequence

    friend bool operator==(const Run&, const Run&) = default;
  };
  struct Sequence {
    uint64_t id = 0;  // the caller's of a running one, the tree's of a cached one
    bool is_running = false;
    int64_t tokens = 0;
    uint64_t bytes = 0;                  // of all its blocks
    uint64_t exclusive_bytes = 0;        // of those that no other sequence of this picture holds
    std::vector<std::vector<Run>> runs;  // by kind, ascending
  };

  std::vector<LayerKind> kinds;
  std::vector<std::string> codecs;
  std::vector<Sequence> sequences;  // running ones as given, then cached ones, latest used first
  int64_t left_out = 0;             // sequences beyond the bounds
};

struct CachePictureOptions {
  int64_t max_sequences = 64;
  // Of one layer per kind, summed over sequences: the cost of a picture.
  int64_t max_blocks = int64_t{1} << 15;
};

struct PicturedSequence {
  const KvSequence* sequence = nullptr;
  uint64_t id = 0;
  uint64_t salt = 0;
  std::vector<Token> tokens;  // of [0, position)
};

// A cached sequence is a leaf of the tree; one that is only the beginning of a running sequence is
// not shown beside it. Takes no reference. O(max_blocks + nodes of the tree).
// REQUIRES: sequences of the tree's pool and spec.
CachePicture PictureOf(std::span<const PicturedSequence> running, const PrefixTree& tree,
                       const CachePictureOptions& options = {});

}  // namespace kvasir

#endif  // KVASIR_KV_CACHE_PICTURE_H_
