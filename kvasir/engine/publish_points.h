// PublishPoints: where a prompt that is being read becomes findable for others.
// Deliberately positions only: the engine ends runs there and publishes.
#ifndef KVASIR_ENGINE_PUBLISH_POINTS_H_
#define KVASIR_ENGINE_PUBLISH_POINTS_H_

#include <cstdint>

#include "kvasir/base/token.h"
#include "kvasir/kv/kv_spec.h"
#include "kvasir/kv/prefix_segment.h"

namespace kvasir {

// Points are a multiple of a segment of the store apart. Where all layers keep all rows they only
// say when others may look: what was published is found to the token. Window layers can be gone on
// with at points only, which cost references to the blocks of their windows. Recurrent layers keep
// a whole state for each, so there points are so far apart that states take no more room than rows
// (4,096 tokens at most); and there is one more, shortly before the prompt's end, as the next turn
// of a conversation may part from this one at what the template puts there to begin an answer.
class PublishPoints {
 public:
  // `stores_segments`: what is read is to be stored in segments, each of which needs a point.
  PublishPoints(const KvCacheSpec& spec, bool stores_segments);

  // Whether what was published can be gone on with at any position.
  bool are_anywhere() const { return are_anywhere_; }
  // The first point behind `position` in a prompt of so many tokens.
  Position Next(Position position, int64_t prompt_tokens) const;
  // The last one at `position` or before it; 0: there is none.
  Position Last(Position position, int64_t prompt_tokens) const;

 private:
  // 0: there is none.
  Position BeforeEnd(int64_t prompt_tokens) const;

  bool are_anywhere_ = false;
  bool has_states_ = false;
  int64_t interval_ = kSegmentTokens;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_PUBLISH_POINTS_H_
