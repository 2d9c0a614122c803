#include "kvasir/engine/publish_points.h"

#include <algorithm>

namespace kvasir {
namespace {

constexpr int64_t kMostSegments = 8;
// More than templates write behind the last message.
constexpr int64_t kAnswerBeginTokens = 16;

int64_t IntervalOf(const KvCacheSpec& spec) {
  size_t state_bytes = 0;
  for (const KvLayerSpec& layer : spec.layers) state_bytes += layer.state_bytes;
  const size_t segment_bytes = spec.TokenBytes() * static_cast<size_t>(kSegmentTokens);
  if (segment_bytes == 0) return kMostSegments * kSegmentTokens;
  const size_t segments = (state_bytes + segment_bytes - 1) / segment_bytes;
  return std::clamp<int64_t>(static_cast<int64_t>(segments), 1, kMostSegments) * kSegmentTokens;
}

}  // namespace

PublishPoints::PublishPoints(const KvCacheSpec& spec, bool stores_segments)
    : cut_runs_(std::ranges::any_of(spec.layers,
                                    [](const KvLayerSpec& layer) {
                                      return layer.layout.dense_recent > 0 ||
                                             layer.retention.kind != RetentionSpec::Kind::kAll;
                                    })),
      has_states_(spec.HasRecurrentLayers()) {
  if (has_states_ && !stores_segments) interval_ = IntervalOf(spec);
}

Position PublishPoints::Next(Position position, const Prompt& prompt) const {
  Position next = position / interval_ * interval_ + interval_;
  if (!has_states_) return next;
  for (const Position at : {BeforeEnd(prompt.tokens), prompt.parts_at}) {
    if (at > position) next = std::min(next, at);
  }
  return next;
}

Position PublishPoints::Last(Position position, int64_t prompt_tokens) const {
  const Position regular = position / interval_ * interval_;
  const Position before_end = BeforeEnd(prompt_tokens);
  return before_end <= position ? std::max(regular, before_end) : regular;
}

std::vector<Position> PublishPoints::StatesWithin(Position begin, Position end,
                                                  const Prompt& prompt) const {
  std::vector<Position> states;
  if (!has_states_) return states;
  const Position last = prompt.tokens - 1;
  for (Position at = begin; at < std::min(end, last);) {
    at = std::min(Next(at, prompt), last);
    if (at <= end) states.push_back(at);
  }
  return states;
}

// At a block's border, where no rows are copied.
Position PublishPoints::BeforeEnd(int64_t prompt_tokens) const {
  if (!has_states_) return 0;
  return std::max<int64_t>(prompt_tokens - kAnswerBeginTokens, 0) / kBlockTokens * kBlockTokens;
}

}  // namespace kvasir
