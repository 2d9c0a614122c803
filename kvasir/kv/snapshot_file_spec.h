// A KvCacheSpec as JSON: the part of a snapshot file that says how its blocks are to be read.
// Deliberately one fixed set of members per layer: the file's version decides what they are.
// Members: docs/formats/kv-snapshot.md.
#ifndef KVASIR_KV_SNAPSHOT_FILE_SPEC_H_
#define KVASIR_KV_SNAPSHOT_FILE_SPEC_H_

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/kv/kv_spec.h"

namespace kvasir {

// An array with an object per layer. ERRORS: kInvalidArgument for a number that is not finite.
Result<Json> KvSpecToJson(const KvCacheSpec& spec);
// The spec, valid, with the same bits. ERRORS: kCorrupt, naming layer and member.
Result<KvCacheSpec> KvSpecFromJson(const Json& json);

}  // namespace kvasir

#endif  // KVASIR_KV_SNAPSHOT_FILE_SPEC_H_
