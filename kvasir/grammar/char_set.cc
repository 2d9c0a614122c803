#include "kvasir/grammar/char_set.h"

#include <algorithm>
#include <utility>

namespace kvasir {
namespace {

constexpr char32_t kLast = 0x10FFFF;
constexpr char32_t kFirstSurrogate = 0xD800;
constexpr char32_t kLastSurrogate = 0xDFFF;

}  // namespace

CharSet::CharSet(std::vector<CharRange> ranges) {
  std::vector<CharRange> cut;
  for (const CharRange& range : ranges) {
    const char32_t high = std::min(range.high, kLast);
    if (range.low < kFirstSurrogate && range.low <= high) {
      cut.push_back({range.low, std::min<char32_t>(high, kFirstSurrogate - 1)});
    }
    if (const char32_t low = std::max<char32_t>(range.low, kLastSurrogate + 1); low <= high) {
      cut.push_back({low, high});
    }
  }
  std::sort(cut.begin(), cut.end(),
            [](const CharRange& a, const CharRange& b) { return a.low < b.low; });
  for (const CharRange& range : cut) {
    if (!ranges_.empty() && range.low <= ranges_.back().high + 1) {
      ranges_.back().high = std::max(ranges_.back().high, range.high);
    } else {
      ranges_.push_back(range);
    }
  }
}

bool CharSet::Contains(char32_t code) const {
  const auto after =
      std::upper_bound(ranges_.begin(), ranges_.end(), code,
                       [](char32_t value, const CharRange& range) { return value < range.low; });
  return after != ranges_.begin() && code <= std::prev(after)->high;
}

CharSet CharSet::Complement() const {
  std::vector<CharRange> gaps;
  char32_t next = 0;
  for (const CharRange& range : ranges_) {
    if (range.low > next) gaps.push_back({next, range.low - 1});
    next = range.high + 1;
  }
  if (next <= kLast) gaps.push_back({next, kLast});
  return CharSet(std::move(gaps));
}

CharSet CharSet::Union(const CharSet& other) const {
  std::vector<CharRange> all = ranges_;
  all.insert(all.end(), other.ranges_.begin(), other.ranges_.end());
  return CharSet(std::move(all));
}

CharSet CharSet::Minus(const CharSet& other) const {
  return Complement().Union(other).Complement();
}

CharSet CharSet::Intersect(const CharSet& other) const { return Minus(other.Complement()); }

}  // namespace kvasir
