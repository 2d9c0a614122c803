#include "kvasir/engine/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace kvasir {

StopMatcher::StopMatcher(std::vector<std::string> stop_strings)
    : stop_strings_(std::move(stop_strings)) {
  std::erase_if(stop_strings_, [](const std::string& stop) { return stop.empty(); });
}

std::string StopMatcher::Push(std::string_view piece) {
  if (matched()) return {};
  held_ += piece;
  size_t first = std::string::npos;  // earliest match; the longest of those that begin there
  for (const std::string& stop : stop_strings_) {
    const size_t at = held_.find(stop);
    if (at == std::string::npos) continue;
    if (at < first || (at == first && stop.size() > matched_.size())) {
      first = at;
      matched_ = stop;
    }
  }
  if (matched()) {
    std::string shown = held_.substr(0, first);
    held_.clear();
    return shown;
  }
  size_t keep = 0;  // longest tail that is a proper beginning of a stop string
  for (const std::string& stop : stop_strings_) {
    for (size_t length = std::min(stop.size() - 1, held_.size()); length > keep; --length) {
      if (held_.ends_with(std::string_view(stop).substr(0, length))) {
        keep = length;
        break;
      }
    }
  }
  std::string shown = held_.substr(0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return shown;
}

std::string StopMatcher::Finish() { return std::exchange(held_, {}); }

}  // namespace kvasir
