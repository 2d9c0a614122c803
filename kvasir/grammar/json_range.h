// Decimal numbers between two bounds, as expressions.
// Deliberately no exponents: where a bound is asked for, numbers are written out.
#ifndef KVASIR_GRAMMAR_JSON_RANGE_H_
#define KVASIR_GRAMMAR_JSON_RANGE_H_

#include <cstdint>
#include <optional>

#include "kvasir/grammar/grammar_syntax.h"

namespace kvasir {

// All integers in [min, max]; nothing if min > max.
GrammarSyntax::Expr IntegersBetween(int64_t min, int64_t max, GrammarSyntax* syntax);

struct DecimalBound {
  int64_t value = 0;
  bool exclusive = false;
};

// Numbers with up to 6 decimals between the bounds, which lie within +-kMaxDecimalBound: at most 15
// digits in all, so that reading them as doubles keeps their order and never rounds onto a bound.
inline constexpr int64_t kMaxDecimalBound = 1'000'000'000;
GrammarSyntax::Expr DecimalsBetween(DecimalBound min, DecimalBound max, GrammarSyntax* syntax);

}  // namespace kvasir

#endif  // KVASIR_GRAMMAR_JSON_RANGE_H_
