// KvBlockMap: which blocks a set of sequences references, by number: what a snapshot file lists,
// what `kvasir inspect` prints and block_map_svg.h draws. Deliberately without the blocks' bytes: a
// plain value that outlives pool and file.
#ifndef KVASIR_KV_BLOCK_MAP_H_
#define KVASIR_KV_BLOCK_MAP_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kvasir/base/token.h"
#include "kvasir/kv/kv_spec.h"

namespace kvasir {

struct KvBlockMap {
  // What a list of blocks holds.
  enum class Part : uint8_t {
    kRows,    // the rows of a layer that owns them
    kRecent,  // the 16-bit copies of its last rows (KvLayout::dense_recent)
    kState,   // states of a recurrent layer, one block each
  };

  // The blocks of one part of one layer of one sequence.
  struct List {
    int layer = 0;
    Part part = Part::kRows;
    // Block numbers, as KvLayer has them: head[i] is the block with index head_first + i, blocks[i]
    // that with index first_block + i.
    // kState: head is the state at the sequence's end, or nothing; blocks are the checkpoints.
    int64_t head_first = 0;
    std::vector<uint32_t> head;
    int64_t first_block = 0;
    std::vector<uint32_t> blocks;
    // kState: the position of each of `blocks`, ascending.
    std::vector<Position> positions;
  };

  // What a budget has left of the rows up to a position (kept_rows.h).
  struct Budget {
    int layer = 0;       // the first layer it is for
    Position until = 0;  // rows of positions from here on are all stored; 0: none evicted yet
    std::vector<Position> positions;  // of each row below
  };

  struct Sequence {
    std::string name;
    Position begin = 0;
    Position end = 0;
    // No state before this position can be had back; see KvContent::floor.
    Position floor = 0;
    std::vector<Token> tokens;    // of positions [begin, end), or empty
    std::vector<List> lists;      // as ListsOf(spec) says
    std::vector<Budget> budgets;  // as BudgetsOf(spec) says
  };

  KvCacheSpec spec;
  std::map<std::string, std::string> metadata;
  std::vector<uint64_t> block_bytes;  // by block number
  std::vector<Sequence> sequences;

  // The lists every sequence of `spec` has, empty, in their order: ascending by layer, rows before
  // recent copies. A layer that reads another's rows has none.
  static std::vector<List> ListsOf(const KvCacheSpec& spec);
  // The budgets every sequence of `spec` has, empty: one per layer that ranks its own rows, one for
  // all others together, ascending by first layer.
  static std::vector<Budget> BudgetsOf(const KvCacheSpec& spec);

  // How the block with this index lies in memory. REQUIRES: not a list of states.
  KvBlockLayout LayoutOf(const List& list, int64_t index) const;
  // By block number: how many sequences reference it.
  std::vector<int> References() const;

  struct Bytes {
    uint64_t all = 0;        // each block once
    uint64_t exclusive = 0;  // those that no other sequence references
  };
  // `references` is References().
  Bytes BytesOf(const Sequence& sequence, const std::vector<int>& references) const;
  Bytes BytesOf(const List& list, const std::vector<int>& references) const;
};

// "f16", or "affine8 / affine4" where values are stored otherwise than keys.
std::string CodecsText(const KvBlockLayout& layout);

// "layers 0-3, 5" of ascending layers. REQUIRES: at least one.
std::string LayersText(const std::vector<int>& layers);

}  // namespace kvasir

#endif  // KVASIR_KV_BLOCK_MAP_H_
