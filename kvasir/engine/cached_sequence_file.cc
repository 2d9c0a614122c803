#include "kvasir/engine/cached_sequence_file.h"

#include <algorithm>
#include <utility>

#include "kvasir/kv/snapshot_file.h"

namespace kvasir {
namespace {

std::string ModelSize(const Model& model) {
  return std::to_string(model.parameters()) + " parameters, " +
         std::to_string(model.weight_bytes()) + " bytes";
}

std::string Value(const CacheMetadata& metadata, const std::string& key) {
  const auto found = metadata.find(key);
  return found == metadata.end() ? "" : found->second;
}

// Something else was saved; its name or its size say so.
Status OtherModel(const std::string& name, const std::string& size, const ModelBundle& bundle) {
  return {ErrorCode::kInvalidArgument, "it was saved with the model '" + name + "' (" + size +
                                           "), and this is '" + bundle.name() + "' (" +
                                           ModelSize(bundle.model()) +
                                           "); load that model, with the same --weights"};
}

// Nothing but the bits differs.
Status OtherBits(const std::string& name) {
  return {ErrorCode::kInvalidArgument,
          "it was saved with the model '" + name +
              "', and this one computes other bits: its weights or its config.json are not the "
              "same, or --weights, --kv-attention or the version of Kvasir; load what it was "
              "saved with"};
}

Status CheckSpec(const CacheMetadata& metadata, const KvCacheSpec& spec,
                 const ModelBundle& bundle) {
  const auto& theirs = spec.layers;
  const auto& ours = bundle.cache_spec()->layers;
  const auto [mine, other] = std::mismatch(ours.begin(), ours.end(), theirs.begin(), theirs.end());
  if (mine == ours.end() && other == theirs.end()) return {};
  return {ErrorCode::kInvalidArgument,
          "its rows are stored as '" + Value(metadata, "cache") + "', and those of this run as '" +
              bundle.DescribeCache() + "' (layer " + std::to_string(mine - ours.begin()) +
              " differs); give the --kv options it was saved with"};
}

}  // namespace

Result<CacheMetadata> ModelMetadata(const ModelBundle& bundle) {
  KVASIR_TRY(std::string fingerprint, bundle.Fingerprint());
  return CacheMetadata{{"model", bundle.name()},
                       {"model_size", ModelSize(bundle.model())},
                       {"cache", bundle.DescribeCache()},
                       {"fingerprint", std::move(fingerprint)}};
}

Result<std::string> ModelIdentity(const ModelBundle& bundle) {
  KVASIR_TRY(const std::string fingerprint, bundle.Fingerprint());
  return bundle.name() + ", " + ModelSize(bundle.model()) + ", " + fingerprint;
}

Status CheckCacheFile(const CacheMetadata& metadata, const KvCacheSpec& spec,
                      const ModelBundle& bundle) {
  const std::string name = Value(metadata, "model");
  if (name.empty()) {
    return {ErrorCode::kInvalidArgument,
            "it does not say which model it belongs to; only what generate, chat and serve have "
            "saved can be gone on with"};
  }
  const std::string fingerprint = Value(metadata, "fingerprint");
  if (fingerprint.empty()) {
    return {ErrorCode::kInvalidArgument,
            "an older version of Kvasir wrote it, which did not say what the model computes; save "
            "it again"};
  }
  KVASIR_TRY(const std::string own, bundle.Fingerprint());
  const std::string size = Value(metadata, "model_size");
  if (own != fingerprint && (name != bundle.name() || size != ModelSize(bundle.model()))) {
    return OtherModel(name, size, bundle);
  }
  KVASIR_TRY_OK(CheckSpec(metadata, spec, bundle));
  if (own != fingerprint) return OtherBits(name);
  return {};
}

Status CheckCacheTokens(const std::string& name, std::span<const Token> tokens,
                        const ModelBundle& bundle) {
  const int64_t vocab_size = bundle.model().vocab_size();
  for (const Token token : tokens) {
    if (token >= 0 && token < vocab_size) continue;
    return {ErrorCode::kCorrupt, "sequence '" + name + "' has the token " + std::to_string(token) +
                                     ", outside the vocabulary of " + std::to_string(vocab_size)};
  }
  return {};
}

Status CheckCacheFile(const KvSnapshotFile& file, const ModelBundle& bundle) {
  KVASIR_TRY_OK(CheckCacheFile(file.metadata, file.sequences[0].snapshot.spec(), bundle));
  for (const NamedSnapshot& sequence : file.sequences) {
    KVASIR_TRY_OK(CheckCacheTokens(sequence.name, sequence.tokens, bundle));
  }
  return {};
}

Status SaveCachedSequence(const CachedSequence& sequence, const ModelBundle& bundle,
                          const std::string& path, CacheMetadata metadata) {
  if (sequence.model() != &bundle.model()) {
    return {ErrorCode::kInvalidArgument, path + ": the sequence is another model's"};
  }
  KVASIR_TRY(CacheMetadata own, ModelMetadata(bundle));
  own.merge(metadata);
  return SaveSnapshots({sequence.Snapshots(), std::move(own)}, path);
}

Result<LoadedCachedSequence> LoadCachedSequence(ModelBundle& bundle, const std::string& path) {
  KVASIR_TRY(KvSnapshotFile file, LoadSnapshots(&bundle.pool(), path));
  const Status fits = CheckCacheFile(file, bundle);
  if (!fits.ok()) return WithContext(fits.error(), path);
  auto sequence =
      CachedSequence::Restore(&bundle.model(), &bundle.pool(), bundle.cache_spec(), file.sequences);
  if (!sequence.ok()) return WithContext(sequence.error(), path);
  return LoadedCachedSequence{*std::move(sequence), std::move(file.metadata)};
}

}  // namespace kvasir
