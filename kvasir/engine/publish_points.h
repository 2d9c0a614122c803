// PublishPoints: where a prompt that is being read becomes findable for others.
// Deliberately positions only: the engine keeps states there, or ends runs, and publishes.
#ifndef KVASIR_ENGINE_PUBLISH_POINTS_H_
#define KVASIR_ENGINE_PUBLISH_POINTS_H_

#include <cstdint>
#include <vector>

#include "kvasir/base/token.h"
#include "kvasir/kv/kv_spec.h"
#include "kvasir/kv/prefix_segment.h"

namespace kvasir {

// Points are a multiple of a segment of the store apart. Where all layers keep all rows they only
// say when others may look: what was published is found to the token. Window layers can be gone on
// with at points only, which cost references to the blocks of their windows.
//
// Recurrent layers keep a whole state for each point. So there they are so far apart that states
// take no more room than rows, 4,096 tokens at most, and there are more where prompts are gone on
// with: where this one parts from all others, as the next will part there too; shortly before the
// end, as the next turn of a conversation may part from this one at what the template writes to
// begin an answer; and before the last token, for the same prompt again.
class PublishPoints {
 public:
  // `stores_segments`: what is read is to be stored in segments, each of which needs a point.
  PublishPoints(const KvCacheSpec& spec, bool stores_segments);

  // Whether what was published can be gone on with at any position.
  bool are_anywhere() const { return !cut_runs_ && !has_states_; }
  // Whether runs must end at points: layers hold what is needed there no longer once they have
  // moved on, and nobody keeps it for them as states are kept.
  bool cut_runs() const { return cut_runs_; }
  struct Prompt {
    int64_t tokens = 0;
    Position parts_at = 0;  // from what was cached before; 0: from the start
  };
  // The first point behind `position`, but for the one before the prompt's last token.
  Position Next(Position position, const Prompt& prompt) const;
  // The last one at `position` or before it, but for that and where the prompt parts; 0: there is
  // none.
  Position Last(Position position, int64_t prompt_tokens) const;
  // Where a run of the positions [begin, end) of a prompt is to leave states: points behind
  // `begin`, `end` included, ascending.
  std::vector<Position> StatesWithin(Position begin, Position end, const Prompt& prompt) const;

 private:
  // 0: there is none.
  Position BeforeEnd(int64_t prompt_tokens) const;

  bool cut_runs_ = false;
  bool has_states_ = false;
  int64_t interval_ = kSegmentTokens;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_PUBLISH_POINTS_H_
