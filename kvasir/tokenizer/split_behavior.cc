#include "kvasir/tokenizer/split_behavior.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace kvasir {
namespace {

// Joins neighbours where `joins(is_match, previous_is_match)`; the text's beginning counts as a
// gap.
template <typename Joins>
void JoinForward(std::vector<TextPart>* parts, const Joins& joins) {
  size_t kept = 0;
  bool previous = false;
  for (const TextPart part : *parts) {
    if (kept > 0 && joins(part.is_match, previous)) {
      (*parts)[kept - 1].span.end = part.span.end;
    } else {
      (*parts)[kept++] = part;
    }
    previous = part.is_match;
  }
  parts->resize(kept);
}

void JoinBackward(std::vector<TextPart>* parts) {
  std::vector<TextPart> joined;
  bool previous = false;
  for (auto part = parts->rbegin(); part != parts->rend(); ++part) {
    if (!joined.empty() && part->is_match && !previous) {
      joined.back().span.begin = part->span.begin;
    } else {
      joined.push_back(*part);
    }
    previous = part->is_match;
  }
  std::reverse(joined.begin(), joined.end());
  *parts = std::move(joined);
}

}  // namespace

Result<SplitBehavior> SplitBehaviorFromJson(const Json& component) {
  static constexpr std::array<std::pair<std::string_view, SplitBehavior>, 5> kNames = {{
      {"Removed", SplitBehavior::kRemoved},
      {"Isolated", SplitBehavior::kIsolated},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  }};
  KVASIR_TRY(const std::string name, component.GetString("behavior"));
  for (const auto& [known, behavior] : kNames) {
    if (known == name) return behavior;
  }
  return {ErrorCode::kUnsupported,
          "field 'behavior' is '" + name +
              "'; known are Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous"};
}

void ApplySplitBehavior(SplitBehavior behavior, std::vector<TextPart>* parts) {
  switch (behavior) {
    case SplitBehavior::kIsolated:
      return;
    case SplitBehavior::kRemoved:
      std::erase_if(*parts, [](const TextPart& part) { return part.is_match; });
      return;
    case SplitBehavior::kContiguous:
      return JoinForward(parts, [](bool match, bool previous) { return match == previous; });
    case SplitBehavior::kMergedWithPrevious:
      return JoinForward(parts, [](bool match, bool previous) { return match && !previous; });
    case SplitBehavior::kMergedWithNext:
      return JoinBackward(parts);
  }
}

}  // namespace kvasir
