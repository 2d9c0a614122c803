// A conversation's cache in a file: tokens, rows, restore points, and which model they belong to.
// Deliberately no format of its own: docs/formats/kv-snapshot.md, with the metadata named here.
#ifndef KVASIR_ENGINE_CACHED_SEQUENCE_FILE_H_
#define KVASIR_ENGINE_CACHED_SEQUENCE_FILE_H_

#include <map>
#include <span>
#include <string>

#include "kvasir/base/result.h"
#include "kvasir/engine/model_bundle.h"
#include "kvasir/kv/snapshot_file.h"

namespace kvasir {

using CacheMetadata = std::map<std::string, std::string>;  // UTF-8

// What every cache file says of the model it belongs to: "model" (the bundle's name), "model_size"
// (parameters and bytes of weights) and "cache" (how rows are stored), for people, and
// "fingerprint" (ModelBundle::Fingerprint, whose errors and threads are this function's and those
// of all below).
Result<CacheMetadata> ModelMetadata(const ModelBundle& bundle);
// All of that which decides bits, in one line, for what is found without being asked for: the
// model's name and size as well, as the fingerprint does not see everything. ERRORS: likewise.
Result<std::string> ModelIdentity(const ModelBundle& bundle);
// OK if a file is of this model and stores rows as it does. ERRORS: as LoadCachedSequence.
Status CheckCacheFile(const CacheMetadata& metadata, const KvCacheSpec& spec,
                      const ModelBundle& bundle);
// OK if all tokens of its sequence `name` are the model's: checksums say that a file is as it was
// written, not who wrote it. ERRORS: kCorrupt.
Status CheckCacheTokens(const std::string& name, std::span<const Token> tokens,
                        const ModelBundle& bundle);
// Both. REQUIRES: a sequence, as every file that was read has.
Status CheckCacheFile(const KvSnapshotFile& file, const ModelBundle& bundle);

struct LoadedCachedSequence {
  CachedSequence sequence;
  CacheMetadata metadata;
};

// Writes `sequence` with `metadata` and, over it, ModelMetadata. A file of that name is replaced
// once the new one is complete.
// ERRORS: as SaveSnapshots; kInvalidArgument for a sequence of another model.
Status SaveCachedSequence(const CachedSequence& sequence, const ModelBundle& bundle,
                          const std::string& path, CacheMetadata metadata = {});

// Reads such a file into the bundle's pool. Going on from it gives the bits of evaluating its
// tokens again: the fingerprint says so, whatever the model is called here.
// ERRORS: as LoadSnapshots and CachedSequence::Restore; kInvalidArgument for another model or
// another way to store rows, saying what differs. The message names the path.
Result<LoadedCachedSequence> LoadCachedSequence(ModelBundle& bundle, const std::string& path);

}  // namespace kvasir

#endif  // KVASIR_ENGINE_CACHED_SEQUENCE_FILE_H_
