// StopMatcher: finds stop strings in streamed text, across piece borders.
// Deliberately on text, not tokens: a stop string may begin in the middle of a token.
#ifndef KVASIR_ENGINE_STOP_MATCHER_H_
#define KVASIR_ENGINE_STOP_MATCHER_H_

#include <string>
#include <string_view>
#include <vector>

namespace kvasir {

class StopMatcher {
 public:
  // Empty strings are ignored.
  explicit StopMatcher(std::vector<std::string> stop_strings);

  // Adds a piece of text and returns what can be shown now: everything up to a stop string, or up
  // to a tail that might still become one. Nothing after a match.
  std::string Push(std::string_view piece);
  // The tail held back, once no more text comes. Empty after a match.
  std::string Finish();

  bool matched() const { return !matched_.empty(); }
  // The stop string that was found, or empty.
  const std::string& matched_string() const { return matched_; }

 private:
  std::vector<std::string> stop_strings_;
  std::string held_;  // text not shown yet
  std::string matched_;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_STOP_MATCHER_H_
