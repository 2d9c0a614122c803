#include "kvasir/grammar/json_formats.h"

#include <algorithm>
#include <array>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace kvasir {
namespace {

// RFC 3339; the day exists in its month, 29 February in leap years only. Many readers have no year
// 0.
std::string Date() {
  const std::string leap_tail = "0[48]|[2468][048]|[13579][26]";
  const std::string year = "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)";
  return "(?:" + year +
         "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
         "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
         "|(?:[0-9]{2}(?:" +
         leap_tail + ")|(?:" + leap_tail + ")00)-02-29)";
}

std::string Time() {
  return "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?"
         "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
}

// At most 63 characters a label and 253 in all (RFC 1035, 2.3.4): few long labels or many short
// ones.
std::string Hostname() {
  const auto label = [](int most) {
    return "[A-Za-z0-9](?:[A-Za-z0-9-]{0," + std::to_string(most - 2) + "}[A-Za-z0-9])?";
  };
  const auto names = [&](int first, int others, int count) {
    return label(first) + "(?:\\." + label(others) + "){0," + std::to_string(count) + "}";
  };
  return "(?:" + names(63, 30, 6) + "|" + names(63, 63, 2) + "|" + names(30, 30, 7) + ")";
}

std::string Ipv4() {
  const std::string part = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])";
  return part + "(?:\\." + part + "){3}";
}

// Eight groups; or "::" with at most six beside it.
std::string Ipv6() {
  const std::string group = "[0-9a-fA-F]{1,4}";
  std::string pattern = "(?:(?:" + group + ":){7}" + group;
  for (int before = 0; before <= 6; ++before) {
    const std::string head =
        before == 0 ? "" : group + "(?::" + group + "){" + std::to_string(before - 1) + "}";
    const int after = 6 - before;
    const std::string tail =
        after == 0 ? ""
                   : "(?:" + group + "(?::" + group + "){0," + std::to_string(after - 1) + "})?";
    pattern += "|" + head + "::" + tail;
    // The last two groups may be an IPv4 address.
    if (after > 0) {
      const std::string groups = "(?:" + group + ":){0," + std::to_string(after - 1) + "}";
      pattern += "|" + head + "::" + groups + Ipv4();
    }
  }
  return pattern + "|(?:" + group + ":){6}" + Ipv4() + ")";
}

std::string Email() {
  // Atoms of RFC 5321 (4.1.2), at most 64 characters in all (4.5.3.1.1).
  const std::string atom = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]";
  return "(?:" + atom + "{1,64}|" + atom + "{1,31}\\." + atom + "{1,31}|" + atom + "{1,15}(?:\\." +
         atom + "{1,15}){0,3})@" + Hostname();
}

std::string Uri() {
  const std::string chars = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
  const std::string user = "(?:(?:[A-Za-z0-9._~!$&'()*+,;=:-]|%[0-9A-Fa-f]{2})*@)?";
  const std::string host = "(?:" + Hostname() + "|\\[" + Ipv6() + "\\])";
  const std::string path = "(?:/" + chars + "*)*";
  // Without a host: "mailto:a@b.c", "urn:isbn:1", "file:///tmp".
  return "[A-Za-z][A-Za-z0-9+.-]{0,15}:(?://(?:" + user + host + "(?::[0-9]{1,5})?)?" + path + "|" +
         chars + "+" + path + ")(?:\\?(?:" + chars + "|[/?])*)?(?:#(?:" + chars + "|[/?])*)?";
}

// RFC 3339, appendix A: days, weeks or clock times, largest unit first, none left out between two.
std::string Duration() {
  const std::string n = "[0-9]{1,4}";
  const std::string time =
      "T(?:" + n + "H(?:" + n + "M(?:" + n + "S)?)?|" + n + "M(?:" + n + "S)?|" + n + "S)";
  const std::string date =
      n + "D|" + n + "M(?:" + n + "D)?|" + n + "Y(?:" + n + "M(?:" + n + "D)?)?";
  return "P(?:" + n + "W|(?:" + date + ")(?:" + time + ")?|" + time + ")";
}

const std::vector<std::pair<std::string_view, std::string>>& Formats() {
  static const std::vector<std::pair<std::string_view, std::string>> kFormats = {
      {"date", Date()},
      {"date-time", Date() + "T" + Time()},
      {"duration", Duration()},
      {"email", Email()},
      {"hostname", Hostname()},
      {"ipv4", Ipv4()},
      {"ipv6", Ipv6()},
      {"time", Time()},
      {"uri", Uri()},
      {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
  };
  return kFormats;
}

}  // namespace

std::string PatternOfFormat(std::string_view format) {
  for (const auto& [name, pattern] : Formats()) {
    if (name == format) return "^(?:" + pattern + ")$";
  }
  return {};
}

bool IsUnheldFormat(std::string_view format) {
  constexpr std::array<std::string_view, 9> kUnheld = {
      "idn-email",     "idn-hostname",          "iri",
      "iri-reference", "uri-reference",         "uri-template",
      "json-pointer",  "relative-json-pointer", "regex"};
  return std::ranges::find(kUnheld, format) != kUnheld.end();
}

std::optional<std::pair<int64_t, int64_t>> RangeOfFormat(std::string_view format) {
  const bool is_unsigned = format.starts_with("u");
  const std::string_view name = is_unsigned ? format.substr(1) : format;
  for (const auto& [known, bits] : {std::pair{"int8", 8}, {"int16", 16}, {"int32", 32}}) {
    if (name != known) continue;
    const int64_t half = int64_t{1} << (bits - 1);
    return is_unsigned ? std::pair<int64_t, int64_t>(0, 2 * half - 1)
                       : std::pair<int64_t, int64_t>(-half, half - 1);
  }
  const bool is_long = format == "uint64" || format == "uint";
  if (!is_long) return std::nullopt;
  return std::pair<int64_t, int64_t>(0, std::numeric_limits<int64_t>::max());
}

std::string KnownFormats() {
  std::string names;
  for (const auto& [name, pattern] : Formats()) {
    if (!names.empty()) names += ", ";
    names += name;
  }
  return names;
}

}  // namespace kvasir
