// One list of blocks that a layer keeps: its rows, or its last rows once more in 16 bit.
// Deliberately immutable and without blocks: KvLayer holds those. Internal to kvasir/kv.
#ifndef KVASIR_KV_KV_STORE_H_
#define KVASIR_KV_KV_STORE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kvasir/kv/kv_spec.h"
#include "kvasir/kv/retention.h"

namespace kvasir {

class KvStore {
 public:
  enum class Kind {
    kRows,    // every row, as the layout says
    kRecent,  // the last rows, dense (KvLayout::dense_recent)
  };

  // The stores of a layer that owns rows: its rows and, if it has any, its recent copies.
  // ERRORS: kInvalidArgument from RetentionSpec::Validate.
  static Result<std::vector<KvStore>> OfLayer(int layer, const KvLayerSpec& spec);

  int layer() const { return layer_; }
  Kind kind() const { return kind_; }
  const Retention& retention() const { return *retention_; }
  // Blocks that hold the retention's head rows.
  int64_t head_blocks() const { return head_blocks_; }

  KvBlockLayout BlockAt(int64_t block) const {
    return kind_ == Kind::kRows ? layout_.BlockAt(block) : layout_.RecentBlock();
  }
  size_t BlockBytes(int64_t block) const { return BlockAt(block).BlockBytes(); }
  // visit(int64_t first, int64_t count, size_t block_bytes) for the blocks [begin, end), in runs
  // of equal size.
  template <typename Visit>
  void VisitSizes(int64_t begin, int64_t end, Visit visit) const {
    while (begin < end) {
      int64_t next = end;
      for (const int64_t change : size_changes_) {
        if (change > begin) next = std::min(next, change);
      }
      visit(begin, next - begin, BlockBytes(begin));
      begin = next;
    }
  }
  // Bytes of the blocks that are held when the next row is `rows` and the last came by itself.
  size_t BytesAt(int64_t rows) const;

 private:
  int layer_ = 0;
  Kind kind_ = Kind::kRows;
  KvLayout layout_;
  std::unique_ptr<const Retention> retention_;
  int64_t head_blocks_ = 0;
  std::vector<int64_t> size_changes_;  // blocks whose layout may differ from that of the one before
};

}  // namespace kvasir

#endif  // KVASIR_KV_KV_STORE_H_
