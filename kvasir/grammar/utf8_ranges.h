// A set of characters as ranges of UTF-8 bytes.
// Deliberately no tables: the few ranges of a grammar are split when it is compiled.
#ifndef KVASIR_GRAMMAR_UTF8_RANGES_H_
#define KVASIR_GRAMMAR_UTF8_RANGES_H_

#include <cstdint>
#include <vector>

#include "kvasir/grammar/char_set.h"

namespace kvasir {

struct ByteRange {
  uint8_t low = 0;
  uint8_t high = 0;
};

// Each element of the result is a sequence of 1 to 4 byte ranges; together they match exactly the
// UTF-8 of the set's characters, each by one sequence (Thompson and Cox's splitting, as in RE2).
std::vector<std::vector<ByteRange>> Utf8Ranges(const CharSet& set);

}  // namespace kvasir

#endif  // KVASIR_GRAMMAR_UTF8_RANGES_H_
