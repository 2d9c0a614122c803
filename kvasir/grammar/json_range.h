// Decimal numbers between two bounds, as expressions.
// Deliberately no exponents beside a bound: there numbers are written out.
#ifndef KVASIR_GRAMMAR_JSON_RANGE_H_
#define KVASIR_GRAMMAR_JSON_RANGE_H_

#include <cstdint>
#include <optional>

#include "kvasir/grammar/grammar_syntax.h"

namespace kvasir {

// All integers in [min, max]; nothing if min > max.
GrammarSyntax::Expr IntegersBetween(int64_t min, int64_t max, GrammarSyntax* syntax);

struct DecimalBound {
  double value = 0;  // the shortest decimal that reads as this double
  bool exclusive = false;
};

// Numbers between the bounds, which lie within +-kMaxDecimalBound, the integers that doubles tell
// apart; between, where they are exclusive on the near side. nullopt: none. Up to 10^9 they have up
// to 6 decimals, next to 0 up to 15: at most 15 digits in all, so that reading them as doubles
// keeps their order and never rounds onto a bound. Beyond 10^9 they are whole, and where there is
// no bound they may have decimals and exponents as well. `most_decimals` bounds their decimals
// further.
inline constexpr int64_t kMaxDecimalBound = int64_t{1} << 53;
inline constexpr int kMostDecimals = 15;
GrammarSyntax::Expr DecimalsBetween(std::optional<DecimalBound> min,
                                    std::optional<DecimalBound> max, int most_decimals,
                                    GrammarSyntax* syntax);

}  // namespace kvasir

#endif  // KVASIR_GRAMMAR_JSON_RANGE_H_
