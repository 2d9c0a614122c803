// The retentions that exist. A new one is a file that defines its factory, a line here, and its
// line in the list of retention.cc.
// Deliberately only for retention.cc and the conformance test: everyone else uses Retention::Make.
#ifndef KVASIR_KV_RETENTION_KINDS_H_
#define KVASIR_KV_RETENTION_KINDS_H_

#include <cstdint>
#include <memory>

#include "kvasir/kv/retention.h"

namespace kvasir {

// REQUIRES of each: a spec that RetentionSpec::Validate accepts.
std::unique_ptr<const Retention> MakeAllRetention(const RetentionSpec& spec);
std::unique_ptr<const Retention> MakeWindowRetention(const RetentionSpec& spec);
std::unique_ptr<const Retention> MakeChunkRetention(const RetentionSpec& spec);

// Of the recent copies of a layer. REQUIRES: a positive multiple of 64.
std::unique_ptr<const Retention> MakeRecentRetention(int64_t dense_recent);

}  // namespace kvasir

#endif  // KVASIR_KV_RETENTION_KINDS_H_
