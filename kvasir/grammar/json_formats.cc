#include "kvasir/grammar/json_formats.h"

#include <utility>
#include <vector>

namespace kvasir {
namespace {

// RFC 3339; the day exists in its month, 29 February in leap years only.
std::string Date() {
  const std::string leap_tail = "0[48]|[2468][048]|[13579][26]";
  return "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
         "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))"
         "|(?:[0-9]{2}(?:" +
         leap_tail + ")|(?:00|" + leap_tail + ")00)-02-29)";
}

std::string Time() {
  return "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\\.[0-9]{1,9})?"
         "(?:Z|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])";
}

std::string Hostname() {
  const std::string label = "[A-Za-z0-9](?:[A-Za-z0-9-]{0,28}[A-Za-z0-9])?";
  return label + "(?:\\." + label + "){0,4}";
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
  }
  return pattern + ")";
}

std::string Email() {
  const std::string word = "[A-Za-z0-9_+-]{1,20}";
  return word + "(?:\\." + word + "){0,2}@" + Hostname();
}

std::string Uri() {
  const std::string chars = "(?:[A-Za-z0-9._~!$&'()*+,;=:@-]|%[0-9A-Fa-f]{2})";
  return "[A-Za-z][A-Za-z0-9+.-]{0,15}://" + Hostname() + "(?::[0-9]{1,5})?(?:/" + chars + "*)*" +
         "(?:\\?(?:" + chars + "|[/?])*)?(?:#(?:" + chars + "|[/?])*)?";
}

std::vector<std::pair<std::string_view, std::string>> Formats() {
  return {
      {"date", Date()},
      {"date-time", Date() + "T" + Time()},
      {"duration",
       "P(?:[0-9]{1,4}W|(?:[0-9]{1,4}D|[0-9]{1,4}M(?:[0-9]{1,4}D)?|[0-9]{1,4}Y"
       "(?:[0-9]{1,4}M(?:[0-9]{1,4}D)?)?)(?:T[0-9]{1,4}H)?|T[0-9]{1,4}(?:H|M|S))"},
      {"email", Email()},
      {"hostname", Hostname()},
      {"ipv4", Ipv4()},
      {"ipv6", Ipv6()},
      {"time", Time()},
      {"uri", Uri()},
      {"uuid", "[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"},
  };
}

}  // namespace

std::string PatternOfFormat(std::string_view format) {
  for (const auto& [name, pattern] : Formats()) {
    if (name == format) return "^(?:" + pattern + ")$";
  }
  return {};
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
