// The retentions that exist. A new one is a file that defines its factory, a line here, and its
// line in the list of retention.cc.
// Deliberately only for retention.cc and the conformance test: everyone else uses Retention::Make.
#ifndef KVASIR_KV_RETENTION_KINDS_H_
#define KVASIR_KV_RETENTION_KINDS_H_

#include <cstdint>
#include <memory>

#include "kvasir/kv/retention.h"

namespace kvasir {

// REQUIRES of each: a size that RetentionSpec::Validate accepts.
std::unique_ptr<const Retention> MakeAllRetention(int64_t size_tokens);
std::unique_ptr<const Retention> MakeWindowRetention(int64_t size_tokens);
std::unique_ptr<const Retention> MakeChunkRetention(int64_t size_tokens);

}  // namespace kvasir

#endif  // KVASIR_KV_RETENTION_KINDS_H_
