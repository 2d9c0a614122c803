// Which rows of a layer stay readable, as a plain value that configurations and files can hold.
// Deliberately without behaviour: retention.h turns it into rules.
#ifndef KVASIR_KV_RETENTION_SPEC_H_
#define KVASIR_KV_RETENTION_SPEC_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "kvasir/base/result.h"

namespace kvasir {

// How a budget ranks rows; formulas in row_scores.h. The names are those in brackets.
enum class RowScore {
  kKnorm,              // [knorm] low key norms stay: the paper's rule
  kKnormHigh,          // [knorm-high] the reverse, for comparison
  kKeyDiff,            // [keydiff] keys unlike the average key stay
  kLagKv,              // [lagkv] rows that stand out against the next partition stay
  kStreaming,          // [streaming] the latest rows stay
  kTova,               // [tova] rows that the last query attends to stay
  kExpectedAttention,  // [expected-attention] rows that coming queries are expected to attend to
  kRandom,             // [random] a fixed pseudo-random choice, for comparison
};
std::string_view RowScoreName(RowScore score);
// ERRORS: kInvalidArgument, listing the names that exist.
Result<RowScore> RowScoreFromName(std::string_view name);

struct RetentionSpec {
  enum class Kind {
    kAll,     // every row
    kWindow,  // the last `size` rows, the query's own included (sliding-window attention)
    kChunk,   // the rows of the query's own chunk: same position / size (Llama 4 local layers)
    kBudget,  // the best `size` rows at every compaction, and those that came after it
  };
  Kind kind = Kind::kAll;
  int64_t size = 0;  // tokens; 0 for kAll

  // kWindow: the first `keep` rows stay in view (attention sinks); they count into size.
  // kBudget: the first `keep` positions are never evicted.
  int64_t keep = 0;

  // kBudget only. Once `size + interval` rows are stored, the rows are compacted to `size`: the
  // first `keep` positions, the last `recent` rows and the best of the others by `score`.
  // 0: only KvSequence::Compact does it.
  int64_t interval = 0;
  int64_t recent = 0;
  RowScore score = RowScore::kKnorm;
  // Each layer ranks its own rows. Otherwise all budget layers of a cache, which then have equal
  // specs, keep one set: scores are summed over layers.
  bool per_layer = false;

  static RetentionSpec All() { return {Kind::kAll, 0}; }
  static RetentionSpec Window(int64_t tokens, int64_t keep = 0) {
    return {Kind::kWindow, tokens, keep};
  }
  static RetentionSpec Chunk(int64_t tokens) { return {Kind::kChunk, tokens}; }

  // "all", "window:4096", "window:4096,keep=4", "chunk:8192",
  // "budget:1024,keep=4,recent=128,interval=256,score=knorm[,per-layer]" (only size is required).
  // FromName reads what name writes.
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
