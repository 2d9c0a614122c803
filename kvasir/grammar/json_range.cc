#include "kvasir/grammar/json_range.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvasir {
namespace {

using Expr = GrammarSyntax::Expr;

constexpr int kDecimals = 6;
constexpr int kDecimalsOfZero = 15;
// The largest magnitude with decimals beside bounds.
constexpr int64_t kMostWithDecimals = 1'000'000'000;
constexpr uint64_t kMostDigits = 9'999'999'999'999'999;

class Ranges {
 public:
  explicit Ranges(GrammarSyntax* syntax) : syntax_(*syntax) {}

  // Numbers of any length without leading zeros.
  Expr Naturals(uint64_t min, uint64_t max) {
    std::vector<Expr> ways;
    for (size_t digits = std::to_string(min).size(); min <= max; ++digits) {
      const std::string nines(digits, '9');
      const std::string highest = std::to_string(max);
      const std::string low = std::to_string(min);
      if (digits >= highest.size()) {
        ways.push_back(Between(low, highest));
        break;
      }
      ways.push_back(Between(low, nines));
      min = std::stoull(nines) + 1;
    }
    return syntax_.Alternatives(std::move(ways));
  }

  // Numbers of magnitudes up to kMostWithDecimals.
  Expr Decimals(DecimalBound min, DecimalBound max) {
    std::vector<Expr> ways;
    if (min.value > max.value) return syntax_.Alternatives({});
    if (max.value >= 0) {
      const DecimalBound low = min.value >= 0 ? min : DecimalBound{0, false};
      ways.push_back(Magnitudes(low, max));
    }
    if (min.value < 0) {
      DecimalBound low = {0, false};
      if (max.value <= 0) low = {-max.value, max.exclusive};
      ways.push_back(
          syntax_.Sequence({syntax_.Literal("-"), Magnitudes(low, {-min.value, min.exclusive})}));
    }
    return syntax_.Alternatives(std::move(ways));
  }

  // Magnitudes above kMostWithDecimals, from `min` to `max`; nullopt: as large as can be.
  Expr Beyond(std::optional<DecimalBound> min, std::optional<DecimalBound> max) {
    auto low = static_cast<uint64_t>(kMostWithDecimals);
    if (min && min->value >= kMostWithDecimals) {
      low = static_cast<uint64_t>(min->value) + (min->exclusive ? 1 : 0);
    }
    if (max) {
      const int64_t high = max->value - (max->exclusive ? 1 : 0);
      const bool is_any = high > 0 && static_cast<uint64_t>(high) >= low;
      return is_any ? Naturals(low, static_cast<uint64_t>(high)) : syntax_.Alternatives({});
    }
    const Expr digit = Digits('0', '9');
    const Expr decimals = syntax_.Optional(
        syntax_.Sequence({syntax_.Literal("."), syntax_.Repeat(digit, 1, kDecimals)}));
    const Expr fraction = syntax_.Optional(
        syntax_.Sequence({syntax_.Literal("."), syntax_.Repeat(digit, 1, kDecimalsOfZero)}));
    // 10^16 to 10^307, which is above every bound.
    const Expr exponent =
        syntax_.Sequence({syntax_.Chars(CharSet({{'E', 'E'}, {'e', 'e'}})),
                          syntax_.Optional(syntax_.Literal("+")), Naturals(16, 307)});
    return syntax_.Alternatives({syntax_.Sequence({Naturals(low, kMostDigits), decimals}),
                                 syntax_.Sequence({Digits('1', '9'), fraction, exponent})});
  }

 private:
  Expr Digits(char low, char high) {
    return syntax_.Chars(CharSet({{static_cast<char32_t>(low), static_cast<char32_t>(high)}}));
  }
  Expr AnyDigits(size_t count) {
    const int n = static_cast<int>(count);
    return syntax_.Repeat(Digits('0', '9'), n, n);
  }

  // Digit strings of equal length, low <= high.
  Expr Between(std::string_view low, std::string_view high) {
    if (low.empty()) return syntax_.Literal("");
    const size_t rest = low.size() - 1;
    const Expr first_low = syntax_.Literal(low.substr(0, 1));
    if (low[0] == high[0]) {
      return syntax_.Sequence({first_low, Between(low.substr(1), high.substr(1))});
    }
    const std::string zeros(rest, '0');
    const std::string nines(rest, '9');
    if (low.substr(1) == zeros && high.substr(1) == nines) {
      return syntax_.Sequence({Digits(low[0], high[0]), AnyDigits(rest)});
    }
    std::vector<Expr> ways = {
        syntax_.Sequence({first_low, Between(low.substr(1), nines)}),
        syntax_.Sequence({syntax_.Literal(high.substr(0, 1)), Between(zeros, high.substr(1))})};
    if (low[0] + 1 < high[0]) {
      const Expr middle = Digits(static_cast<char>(low[0] + 1), static_cast<char>(high[0] - 1));
      ways.push_back(syntax_.Sequence({middle, AnyDigits(rest)}));
    }
    return syntax_.Alternatives(std::move(ways));
  }

  // Numbers from 0 upwards.
  Expr Magnitudes(DecimalBound min, DecimalBound max) {
    const Expr dot = syntax_.Literal(".");
    const Expr digit = Digits('0', '9');
    const Expr zero = syntax_.Literal("0");
    const Expr decimals =
        syntax_.Optional(syntax_.Sequence({dot, syntax_.Repeat(digit, 1, kDecimals)}));
    const Expr zeros =
        syntax_.Optional(syntax_.Sequence({dot, syntax_.Repeat(zero, 1, kDecimals)}));
    std::vector<Expr> ways;
    const auto low = static_cast<uint64_t>(min.value);
    const auto high = static_cast<uint64_t>(max.value);
    if (low > high) return syntax_.Alternatives({});
    if (low == high) {
      if (min.exclusive || max.exclusive) return syntax_.Alternatives({});
      return syntax_.Sequence({syntax_.Literal(std::to_string(low)), zeros});
    }
    const int most = low == 0 ? kDecimalsOfZero : kDecimals;
    const Expr first = syntax_.Optional(syntax_.Sequence({dot, syntax_.Repeat(digit, 1, most)}));
    ways.push_back(syntax_.Sequence(
        {syntax_.Literal(std::to_string(low)), min.exclusive ? NonzeroDecimals(most) : first}));
    if (low + 1 < high) {
      ways.push_back(syntax_.Sequence({Naturals(low + 1, high - 1), decimals}));
    }
    if (!max.exclusive) {
      ways.push_back(syntax_.Sequence({syntax_.Literal(std::to_string(high)), zeros}));
    }
    return syntax_.Alternatives(std::move(ways));
  }

  Expr NonzeroDecimals(int most) {
    std::vector<Expr> ways;
    for (int zeros = 0; zeros < most; ++zeros) {
      ways.push_back(syntax_.Sequence(
          {syntax_.Literal(std::string(".").append(static_cast<size_t>(zeros), '0')),
           Digits('1', '9'), syntax_.Repeat(Digits('0', '9'), 0, most - zeros - 1)}));
    }
    return syntax_.Alternatives(std::move(ways));
  }

  GrammarSyntax& syntax_;
};

}  // namespace

Expr IntegersBetween(int64_t min, int64_t max, GrammarSyntax* syntax) {
  Ranges ranges(syntax);
  std::vector<Expr> ways;
  if (min > max) return syntax->Alternatives({});
  if (max >= 0) {
    ways.push_back(ranges.Naturals(static_cast<uint64_t>(std::max<int64_t>(min, 0)),
                                   static_cast<uint64_t>(max)));
  }
  if (min < 0) {
    // Magnitudes as unsigned: that of the least integer has no positive counterpart.
    const uint64_t least = max < 0 ? uint64_t{0} - static_cast<uint64_t>(max) : 1;
    const uint64_t greatest = uint64_t{0} - static_cast<uint64_t>(min);
    ways.push_back(syntax->Sequence({syntax->Literal("-"), ranges.Naturals(least, greatest)}));
  }
  return syntax->Alternatives(std::move(ways));
}

Expr DecimalsBetween(std::optional<DecimalBound> min, std::optional<DecimalBound> max,
                     GrammarSyntax* syntax) {
  Ranges ranges(syntax);
  const auto mirrored = [](const std::optional<DecimalBound>& bound) {
    if (!bound) return bound;
    return std::optional<DecimalBound>(DecimalBound{-bound->value, bound->exclusive});
  };
  DecimalBound low = {-kMostWithDecimals, false};
  DecimalBound high = {kMostWithDecimals, false};
  if (min && min->value >= low.value) low = *min;
  if (max && max->value <= high.value) high = *max;
  std::vector<Expr> ways;
  const bool has_decimals = low.value <= kMostWithDecimals && high.value >= -kMostWithDecimals;
  if (has_decimals) ways.push_back(ranges.Decimals(low, high));
  ways.push_back(ranges.Beyond(min, max));
  ways.push_back(
      syntax->Sequence({syntax->Literal("-"), ranges.Beyond(mirrored(max), mirrored(min))}));
  return syntax->Alternatives(std::move(ways));
}

}  // namespace kvasir
