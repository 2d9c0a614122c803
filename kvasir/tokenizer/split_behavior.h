// What becomes of the matches and gaps of a pattern: the five split behaviours.
// Deliberately about parts only; finding them is pattern.h's.
#ifndef KVASIR_TOKENIZER_SPLIT_BEHAVIOR_H_
#define KVASIR_TOKENIZER_SPLIT_BEHAVIOR_H_

#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/tokenizer/pattern.h"

namespace kvasir {

enum class SplitBehavior {
  kRemoved,             // matches disappear
  kIsolated,            // every match is a piece
  kMergedWithPrevious,  // a match joins the piece before it
  kMergedWithNext,      // a match joins the piece after it
  kContiguous,          // matches that touch are one piece
};

// Reads the member "behavior". ERRORS: kCorrupt, kUnsupported.
Result<SplitBehavior> SplitBehaviorFromJson(const Json& component);

// Turns matches and gaps (they cover the text) into the pieces to keep, in order.
void ApplySplitBehavior(SplitBehavior behavior, std::vector<TextPart>* parts);

}  // namespace kvasir

#endif  // KVASIR_TOKENIZER_SPLIT_BEHAVIOR_H_
