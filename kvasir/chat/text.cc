// Run-length origins of a string.
// Deliberately not merging equal neighbours lazily: runs are always maximal.
#include "kvasir/chat/text.h"

#include <algorithm>

namespace kvasir::chat {

Origin Text::origin() const {
  if (runs_.empty()) return Origin::kTemplate;
  return runs_.size() == 1 ? runs_[0].origin : Origin::kInput;
}

size_t Text::RunIndexAt(size_t position) const {
  const auto found =
      std::upper_bound(runs_.begin(), runs_.end(), position,
                       [](size_t wanted, const Run& run) { return wanted < run.end_bytes; });
  return static_cast<size_t>(found - runs_.begin());
}

Origin Text::OriginAt(size_t position) const { return runs_[RunIndexAt(position)].origin; }

void Text::Append(std::string_view bytes, Origin origin) {
  if (bytes.empty()) return;
  bytes_.append(bytes);
  if (!runs_.empty() && runs_.back().origin == origin) {
    runs_.back().end_bytes = bytes_.size();
  } else {
    runs_.push_back({bytes_.size(), origin});
  }
}

void Text::Append(const Text& other) { AppendRange(other, 0, other.size()); }

void Text::AppendRange(const Text& other, size_t begin, size_t end) {
  const std::string_view bytes = other.bytes_;
  for (size_t run = begin < end ? other.RunIndexAt(begin) : 0; begin < end; ++run) {
    const size_t stop = std::min(end, other.runs_[run].end_bytes);
    Append(bytes.substr(begin, stop - begin), other.runs_[run].origin);
    begin = stop;
  }
}

Text Text::Substr(size_t begin, size_t end) const {
  Text result;
  result.AppendRange(*this, begin, end);
  result.is_markup_ = is_markup_;
  return result;
}

Text Text::AsMarkup() const {
  Text result = *this;
  result.is_markup_ = true;
  return result;
}

Text Text::AsPlain() const {
  Text result = *this;
  result.is_markup_ = false;
  return result;
}

Text EscapeHtml(const Text& text) {
  if (text.is_markup()) return text;
  Text result;
  for (size_t at = 0; at < text.size(); ++at) {
    std::string_view entity;
    switch (text.bytes()[at]) {
      case '&':
        entity = "&amp;";
        break;
      case '<':
        entity = "&lt;";
        break;
      case '>':
        entity = "&gt;";
        break;
      case '\'':
        entity = "&#39;";
        break;
      case '"':
        entity = "&#34;";
        break;
      default:
        break;
    }
    if (entity.empty()) {
      result.AppendRange(text, at, at + 1);
    } else {
      result.Append(entity, text.OriginAt(at));
    }
  }
  return result.AsMarkup();
}

}  // namespace kvasir::chat
