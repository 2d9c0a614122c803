#include "kvasir/tokenizer/regex_property.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <span>
#include <utility>

namespace kvasir {
namespace {

using Entry = std::pair<std::string_view, std::string_view>;

constexpr std::array<Entry, 14> kPosix = {{
    {"alnum", "\\p{Alphabetic}\\p{Nd}"},
    {"alpha", "\\p{Alphabetic}"},
    {"ascii", "\\x00-\\x7f"},
    {"blank", "\\p{Zs}\\t"},
    {"cntrl", "\\p{Cc}"},
    {"digit", "\\p{Nd}"},
    {"graph", "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Co}"},
    {"lower", "\\p{Lowercase}"},
    {"print", "\\p{L}\\p{M}\\p{N}\\p{P}\\p{S}\\p{Cf}\\p{Co}\\p{Zs}"},
    {"punct", "\\p{P}"},
    {"space", kRegexSpaceMembers},
    {"upper", "\\p{Uppercase}"},
    {"word", "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"},
    {"xdigit", "0-9a-fA-F"},
}};

constexpr std::array<Entry, 37> kLongCategories = {{
    {"letter", "L"},
    {"casedletter", "L&"},
    {"uppercaseletter", "Lu"},
    {"lowercaseletter", "Ll"},
    {"titlecaseletter", "Lt"},
    {"lc", "L&"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"mark", "M"},
    {"combiningmark", "M"},
    {"nonspacingmark", "Mn"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"openpunctuation", "Ps"},
    {"closepunctuation", "Pe"},
    {"initialpunctuation", "Pi"},
    {"finalpunctuation", "Pf"},
    {"otherpunctuation", "Po"},
    {"symbol", "S"},
    {"mathsymbol", "Sm"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"spaceseparator", "Zs"},
    {"lineseparator", "Zl"},
    {"paragraphseparator", "Zp"},
    {"other", "C"},
    {"control", "Cc"},
    {"format", "Cf"},
}};

constexpr std::array<std::string_view, 22> kBinary = {
    "alphabetic",
    "any",
    "caseignorable",
    "cased",
    "dash",
    "diacritic",
    "emoji",
    "emojicomponent",
    "emojimodifier",
    "emojimodifierbase",
    "emojipresentation",
    "extendedpictographic",
    "extender",
    "hexdigit",
    "idcontinue",
    "ideographic",
    "idstart",
    "lowercase",
    "math",
    "regionalindicator",
    "uppercase",
    "whitespace",
};

std::optional<std::string_view> Look(std::span<const Entry> table, std::string_view name) {
  const auto found = std::find_if(table.begin(), table.end(),
                                  [&](const Entry& entry) { return entry.first == name; });
  if (found == table.end()) return std::nullopt;
  return found->second;
}

RegexProperty Single(std::string_view name) {
  return {std::string("\\p{").append(name).append("}"), false};
}

bool IsSingle(std::string_view members) {
  return members.starts_with("\\p{") && members.find('}') == members.size() - 1;
}

}  // namespace

RegexProperty RegexProperty::Negated() const {
  if (!IsSingle(members)) return {members, !negated};
  return {std::string("\\p{^").append(members, 3), false};
}

Result<RegexProperty> FindRegexProperty(std::string_view name) {
  std::string plain;
  for (const char c : name) {
    if (c == '_' || c == '-' || c == ' ') continue;
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) {
      return {ErrorCode::kUnsupported, std::string("unknown property \\p{").append(name) + "}"};
    }
    plain.push_back(static_cast<char>(std::tolower(static_cast<unsigned char>(c))));
  }
  if (const auto members = Look(kPosix, plain); members.has_value()) {
    return RegexProperty{std::string(*members), false};
  }
  if (const auto category = Look(kLongCategories, plain); category.has_value()) {
    return Single(*category);
  }
  if (std::find(kBinary.begin(), kBinary.end(), plain) != kBinary.end()) return Single(plain);
  if (plain.size() > 2) return Single("sc:" + plain);
  if (!plain.empty()) {
    plain[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(plain[0])));
  }
  return Single(plain);
}

Result<RegexProperty> FindPosixBracket(std::string_view name) {
  if (name == "punct") return RegexProperty{"\\p{P}\\p{S}", false};
  if (name == "word") return RegexProperty{std::string(kRegexWordMembers), false};
  if (const auto members = Look(kPosix, name); members.has_value()) {
    return RegexProperty{std::string(*members), false};
  }
  return {ErrorCode::kUnsupported, std::string("unknown class [:").append(name) + ":]"};
}

}  // namespace kvasir
