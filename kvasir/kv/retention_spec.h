// Which rows of a layer stay readable, as a plain value that configurations and files can hold.
// Deliberately without behaviour: retention.h turns it into rules.
#ifndef KVASIR_KV_RETENTION_SPEC_H_
#define KVASIR_KV_RETENTION_SPEC_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "kvasir/base/result.h"

namespace kvasir {

struct RetentionSpec {
  enum class Kind {
    kAll,     // every row
    kWindow,  // the last `size` rows, the query's own included (sliding-window attention)
    kChunk,   // the rows of the query's own chunk: same position / size (Llama 4 local layers)
  };
  Kind kind = Kind::kAll;
  int64_t size = 0;  // tokens; 0 for kAll

  static RetentionSpec All() { return {Kind::kAll, 0}; }
  static RetentionSpec Window(int64_t tokens) { return {Kind::kWindow, tokens}; }
  static RetentionSpec Chunk(int64_t tokens) { return {Kind::kChunk, tokens}; }

  // "all", "window:4096", "chunk:8192"; FromName reads what name writes.
  std::string name() const;
  // ERRORS: kInvalidArgument, naming the forms that exist.
  static Result<RetentionSpec> FromName(std::string_view name);
  // ERRORS: kInvalidArgument for a size that means nothing (see kMaxRetentionTokens).
  Status Validate() const;

  friend bool operator==(const RetentionSpec&, const RetentionSpec&) = default;
};

// Far above any context length, far below what could overflow a position.
inline constexpr int64_t kMaxRetentionTokens = int64_t{1} << 40;

}  // namespace kvasir

#endif  // KVASIR_KV_RETENTION_SPEC_H_
