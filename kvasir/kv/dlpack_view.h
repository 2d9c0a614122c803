// Rows of a sequence as DLPack tensors, for numpy, PyTorch and whatever else reads them.
// Deliberately only on the host: a pool in another memory must not be viewed with this.
#ifndef KVASIR_KV_DLPACK_VIEW_H_
#define KVASIR_KV_DLPACK_VIEW_H_

#include <cstdint>
#include <memory>

#include "kvasir/kv/kv_sequence.h"

struct DLManagedTensor;  // dlpack.h of DLPack, ABI version 0.6: without the later flags

namespace kvasir {

enum class KvPart { kKeys, kValues };

struct DlpackRequest {
  int layer = 0;
  KvPart part = KvPart::kKeys;
  // Released with the tensor, after its block: what keeps the pool alive. May be null.
  std::shared_ptr<const void> owner;
};

// A tensor belongs to the caller, who ends it with its deleter. That must happen before the pool
// ends and on the pool's thread. The tensor stays as it is whatever becomes of the sequence.

// The rows of block `block` that are written, without a copy: [kv_heads, rows, dim] with strides
// (keys lie token-minor), in the block's own element type. Read-only: consumers must not write,
// which this version of DLPack cannot say. While the tensor lives its block counts as shared, so a
// sequence that goes on writing into it copies it first.
// ERRORS: kInvalidArgument if the layer has no rows or the block is not held or empty;
// kUnsupported if the codec of this block is not dense (gather the rows then).
Result<DLManagedTensor*> DlpackBlock(const KvSequence& sequence, const DlpackRequest& request,
                                     int64_t block);

// The rows [begin, end) of any codec, decoded into memory of the tensor's own: f32
// [rows, kv_heads, dim], compact. O(rows), outside of the pool's budget; may be written.
// ERRORS: kInvalidArgument unless the layer has rows and holds these.
Result<DLManagedTensor*> DlpackRows(const KvSequence& sequence, const DlpackRequest& request,
                                    int64_t begin, int64_t end);

}  // namespace kvasir

#endif  // KVASIR_KV_DLPACK_VIEW_H_
