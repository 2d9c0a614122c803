#include "kvasir/grammar/utf8_ranges.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kvasir/tokenizer/utf8.h"

namespace kvasir {
namespace {

using Sequence = std::vector<ByteRange>;

void AddSequence(char32_t low, char32_t high, std::vector<Sequence>* sequences) {
  std::string first;
  std::string last;
  AppendUtf8(low, &first);
  AppendUtf8(high, &last);
  Sequence sequence;
  for (size_t i = 0; i < first.size(); ++i) {
    sequence.push_back({static_cast<uint8_t>(first[i]), static_cast<uint8_t>(last[i])});
  }
  sequences->push_back(std::move(sequence));
}

// Cuts [low, high] where continuation bytes do not span whole ranges.
void Split(char32_t low, char32_t high, std::vector<Sequence>* sequences) {
  for (const char32_t last_of_length : {0x7Fu, 0x7FFu, 0xFFFFu}) {
    if (low <= last_of_length && high > last_of_length) {
      Split(low, last_of_length, sequences);
      Split(last_of_length + 1, high, sequences);
      return;
    }
  }
  for (int bytes = 1; bytes < 4 && high > 0x7F; ++bytes) {
    const char32_t mask = (char32_t{1} << (6 * bytes)) - 1;
    if ((low & ~mask) == (high & ~mask)) break;
    if ((low & mask) != 0) {
      Split(low, low | mask, sequences);
      Split((low | mask) + 1, high, sequences);
      return;
    }
    if ((high & mask) != mask) {
      Split(low, (high & ~mask) - 1, sequences);
      Split(high & ~mask, high, sequences);
      return;
    }
  }
  AddSequence(low, high, sequences);
}

}  // namespace

std::vector<Sequence> Utf8Ranges(const CharSet& set) {
  std::vector<Sequence> sequences;
  for (const CharRange& range : set.ranges()) Split(range.low, range.high, &sequences);
  return sequences;
}

}  // namespace kvasir
