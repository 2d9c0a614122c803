#include "kvasir/grammar/json_range.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kvasir {
namespace {

using Expr = GrammarSyntax::Expr;

constexpr int kDecimals = 6;
// The largest magnitude with decimals beside bounds.
constexpr double kMostWithDecimals = 1e9;
constexpr uint64_t kMostDigits = 9'999'999'999'999'999;

// A bound of 0 or more, written out.
struct Magnitude {
  explicit Magnitude(const DecimalBound& bound)
      : whole(static_cast<uint64_t>(bound.value)), exclusive(bound.exclusive) {
    char digits[512];
    const auto end =
        std::to_chars(digits, digits + sizeof(digits), bound.value, std::chars_format::fixed).ptr;
    const std::string_view text(digits, static_cast<size_t>(end - digits));
    const size_t dot = text.find('.');
    if (dot != text.npos) decimals = text.substr(dot + 1);
  }

  uint64_t whole;
  std::string decimals;  // without zeros at their end
  bool exclusive;
};

class Ranges {
 public:
  Ranges(int most_decimals, GrammarSyntax* syntax)
      : decimals_(std::min(kDecimals, most_decimals)),
        decimals_of_zero_(std::min(kMostDecimals, most_decimals)),
        syntax_(*syntax) {}

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
      ways.push_back(Magnitudes(Magnitude(low), Magnitude(max)));
    }
    if (min.value < 0) {
      DecimalBound low = {0, false};
      if (max.value <= 0) low = {-max.value, max.exclusive};
      const DecimalBound high = {-min.value, min.exclusive};
      ways.push_back(
          syntax_.Sequence({syntax_.Literal("-"), Magnitudes(Magnitude(low), Magnitude(high))}));
    }
    return syntax_.Alternatives(std::move(ways));
  }

  // Magnitudes above kMostWithDecimals, from `min` to `max`; nullopt: as large as can be.
  Expr Beyond(std::optional<DecimalBound> min, std::optional<DecimalBound> max) {
    auto low = static_cast<uint64_t>(kMostWithDecimals);
    if (min && min->value >= kMostWithDecimals) {
      const double whole = std::ceil(min->value);
      low = static_cast<uint64_t>(whole) + (min->exclusive && whole == min->value ? 1 : 0);
    }
    if (max) {
      const double whole = std::floor(max->value);
      const int64_t high =
          static_cast<int64_t>(whole) - (max->exclusive && whole == max->value ? 1 : 0);
      const bool is_any = high > 0 && static_cast<uint64_t>(high) >= low;
      return is_any ? Naturals(low, static_cast<uint64_t>(high)) : syntax_.Alternatives({});
    }
    const Expr decimals = Fraction(std::nullopt, std::nullopt, decimals_);
    const Expr fraction = Fraction(std::nullopt, std::nullopt, decimals_of_zero_);
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
  Expr Magnitudes(const Magnitude& min, const Magnitude& max) {
    if (min.whole > max.whole) return syntax_.Alternatives({});
    const Edge low = {min.decimals, min.exclusive};
    const Edge high = {max.decimals, max.exclusive};
    const auto most = [&](uint64_t whole) { return whole == 0 ? decimals_of_zero_ : decimals_; };
    const auto with = [&](uint64_t whole, std::optional<Edge> from, std::optional<Edge> to) {
      return syntax_.Sequence(
          {syntax_.Literal(std::to_string(whole)), Fraction(from, to, most(whole))});
    };
    if (min.whole == max.whole) return with(min.whole, low, high);
    std::vector<Expr> ways = {with(min.whole, low, std::nullopt)};
    if (min.whole + 1 < max.whole) {
      ways.push_back(syntax_.Sequence({Naturals(min.whole + 1, max.whole - 1),
                                       Fraction(std::nullopt, std::nullopt, decimals_)}));
    }
    ways.push_back(with(max.whole, std::nullopt, high));
    return syntax_.Alternatives(std::move(ways));
  }

  // Decimals still to be met, none of what follows them, or nothing but zeros.
  struct Edge {
    std::string_view digits;  // without zeros at their end
    bool exclusive = false;
  };

  // Whether no further decimal may follow.
  static bool MayEnd(const std::optional<Edge>& from, const std::optional<Edge>& to) {
    return (!from || (from->digits.empty() && !from->exclusive)) &&
           (!to || !to->digits.empty() || !to->exclusive);
  }

  // Nothing, or a point and up to `most` decimals.
  Expr Fraction(std::optional<Edge> from, std::optional<Edge> to, int most) {
    std::vector<Expr> ways;
    if (MayEnd(from, to)) ways.push_back(syntax_.Literal(""));
    if (const auto decimals = NextDecimals(from, to, most)) {
      ways.push_back(syntax_.Sequence({syntax_.Literal("."), *decimals}));
    }
    return syntax_.Alternatives(std::move(ways));
  }

  // One decimal or more of those between two edges; nullopt: there are none.
  std::optional<Expr> NextDecimals(std::optional<Edge> from, std::optional<Edge> to, int most) {
    if (most == 0) return std::nullopt;
    if (from && from->digits.empty() && !from->exclusive) from.reset();
    if (!from && !to) return syntax_.Repeat(Digits('0', '9'), 1, most);
    const auto next = [](const Edge& edge) { return edge.digits.empty() ? '0' : edge.digits[0]; };
    const auto after = [](const Edge& edge) {
      return Edge{edge.digits.substr(std::min<size_t>(1, edge.digits.size())), edge.exclusive};
    };
    const char low = from ? next(*from) : '0';
    const char high = to ? next(*to) : '9';
    std::vector<Expr> ways;
    // A digit that is next to an edge, or to both, and what may follow it.
    const auto add = [&](char digit, bool is_low, bool is_high) {
      const auto rest_from = is_low ? std::optional(after(*from)) : std::nullopt;
      const auto rest_to = is_high ? std::optional(after(*to)) : std::nullopt;
      std::vector<Expr> rest;
      if (MayEnd(rest_from, rest_to)) rest.push_back(syntax_.Literal(""));
      if (const auto more = NextDecimals(rest_from, rest_to, most - 1)) rest.push_back(*more);
      if (rest.empty()) return;
      ways.push_back(syntax_.Sequence(
          {syntax_.Literal(std::string(1, digit)), syntax_.Alternatives(std::move(rest))}));
    };
    if (low > high) return std::nullopt;
    if (low == high) {
      add(low, from.has_value(), to.has_value());
    } else {
      if (from) add(low, true, false);
      const char first = static_cast<char>(low + (from ? 1 : 0));
      const char last = static_cast<char>(high - (to ? 1 : 0));
      if (first <= last) {
        ways.push_back(
            syntax_.Sequence({Digits(first, last), syntax_.Repeat(Digits('0', '9'), 0, most - 1)}));
      }
      if (to) add(high, false, true);
    }
    if (ways.empty()) return std::nullopt;
    return syntax_.Alternatives(std::move(ways));
  }

  const int decimals_;          // beside a whole part other than 0
  const int decimals_of_zero_;  // beside 0
  GrammarSyntax& syntax_;
};

}  // namespace

Expr IntegersBetween(int64_t min, int64_t max, GrammarSyntax* syntax) {
  Ranges ranges(0, syntax);
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
                     int most_decimals, GrammarSyntax* syntax) {
  Ranges ranges(most_decimals, syntax);
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
