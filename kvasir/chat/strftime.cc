// datetime.strftime in the C locale.
// Deliberately not the C library's: that reads the process's locale and time zone.
#include <array>
#include <cstdio>
#include <string>

#include "kvasir/chat/builtins.h"

namespace kvasir::chat {
namespace {

constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};
constexpr std::array<std::string_view, 12> kMonths = {
    "January", "February", "March",     "April",   "May",      "June",
    "July",    "August",   "September", "October", "November", "December"};

struct Time {
  int64_t unix_seconds;
  int year, month, day;  // month and day from 1
  int hour, minute, second;
  int weekday;   // 0 is Sunday
  int year_day;  // 0 is the first of January
};

bool IsLeap(int year) { return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0; }

// The Gregorian date of a day number: Hinnant, "chrono-Compatible Low-Level Date Algorithms",
// civil_from_days.
Time Split(int64_t seconds) {
  int64_t days = seconds / 86400;
  int64_t rest = seconds % 86400;
  if (rest < 0) {
    rest += 86400;
    --days;
  }
  const int64_t shifted = days + 719468;
  const int64_t era = (shifted >= 0 ? shifted : shifted - 146096) / 146097;
  const auto day_of_era = static_cast<int>(shifted - era * 146097);
  const int year_of_era =
      (day_of_era - day_of_era / 1460 + day_of_era / 36524 - day_of_era / 146096) / 365;
  const int day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
  const int month_from_march = (5 * day_of_year + 2) / 153;
  Time time{};
  time.unix_seconds = seconds;
  time.day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
  time.month = month_from_march < 10 ? month_from_march + 3 : month_from_march - 9;
  time.year = static_cast<int>(year_of_era + era * 400) + (time.month <= 2 ? 1 : 0);
  time.hour = static_cast<int>(rest / 3600);
  time.minute = static_cast<int>(rest / 60 % 60);
  time.second = static_cast<int>(rest % 60);
  time.weekday = static_cast<int>(((days + 4) % 7 + 7) % 7);
  static constexpr std::array<int, 12> kBefore = {0,   31,  59,  90,  120, 151,
                                                  181, 212, 243, 273, 304, 334};
  time.year_day = kBefore[static_cast<size_t>(time.month - 1)] + time.day - 1 +
                  (time.month > 2 && IsLeap(time.year) ? 1 : 0);
  return time;
}

struct IsoWeek {
  int year, week;
};

// ISO 8601: week 1 holds the first Thursday.
IsoWeek WeekOf(const Time& time) {
  const int monday_based = (time.weekday + 6) % 7;
  const int week = (time.year_day - monday_based + 10) / 7;
  const auto weeks_in = [](int year) {
    const auto p = [](int y) { return (y + y / 4 - y / 100 + y / 400) % 7; };
    return p(year) == 4 || p(year - 1) == 3 ? 53 : 52;
  };
  if (week < 1) return {time.year - 1, weeks_in(time.year - 1)};
  if (week > weeks_in(time.year)) return {time.year + 1, 1};
  return {time.year, week};
}

// How a number is written: flag '-' drops the padding, '_' pads with blanks, '0' with zeros.
std::string Number(int64_t value, int width, char padding, char flag) {
  if (flag == '-') return std::to_string(value);
  if (flag == '_') padding = ' ';
  if (flag == '0') padding = '0';
  std::string digits = std::to_string(value);
  const auto wanted = static_cast<size_t>(width);
  return digits.size() >= wanted ? digits : std::string(wanted - digits.size(), padding) + digits;
}

std::string Field(char directive, char flag, const Time& time);

std::string Expand(std::string_view format, const Time& time) {
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 >= format.size()) {
      out.push_back(format[i]);
      continue;
    }
    char directive = format[++i];
    char flag = 0;
    const bool is_flag = std::string_view("-_0^#").find(directive) != std::string_view::npos;
    if (is_flag && i + 1 < format.size()) {
      flag = directive;
      directive = format[++i];
    }
    std::string field = Field(directive, flag, time);
    if (flag == '^') {
      for (char& c : field) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
    }
    out += field;
  }
  return out;
}

std::string Field(char directive, char flag, const Time& time) {
  const auto two = [&](int64_t value) { return Number(value, 2, '0', flag); };
  const int hour12 = time.hour % 12 == 0 ? 12 : time.hour % 12;
  const std::string_view day = kDays[static_cast<size_t>(time.weekday)];
  const std::string_view month = kMonths[static_cast<size_t>(time.month - 1)];
  switch (directive) {
    case 'a':
      return std::string(day.substr(0, 3));
    case 'A':
      return std::string(day);
    case 'b':
    case 'h':
      return std::string(month.substr(0, 3));
    case 'B':
      return std::string(month);
    case 'c':
      return Expand("%a %b %e %H:%M:%S %Y", time);
    case 'C':
      return two(time.year / 100);
    case 'd':
      return two(time.day);
    case 'D':
    case 'x':
      return Expand("%m/%d/%y", time);
    case 'e':
      return Number(time.day, 2, ' ', flag);
    case 'f':
      return "000000";
    case 'F':
      return Expand("%Y-%m-%d", time);
    case 'g':
      return two(WeekOf(time).year % 100);
    case 'G':
      return std::to_string(WeekOf(time).year);
    case 'H':
      return two(time.hour);
    case 'I':
      return two(hour12);
    case 'j':
      return Number(time.year_day + 1, 3, '0', flag);
    case 'k':
      return Number(time.hour, 2, ' ', flag);
    case 'l':
      return Number(hour12, 2, ' ', flag);
    case 'm':
      return two(time.month);
    case 'M':
      return two(time.minute);
    case 'n':
      return "\n";
    case 'p':
      return time.hour < 12 ? "AM" : "PM";
    case 'P':
      return time.hour < 12 ? "am" : "pm";
    case 'r':
      return Expand("%I:%M:%S %p", time);
    case 'R':
      return Expand("%H:%M", time);
    case 's':
      return std::to_string(time.unix_seconds);
    case 'S':
      return two(time.second);
    case 't':
      return "\t";
    case 'T':
    case 'X':
      return Expand("%H:%M:%S", time);
    case 'u':
      return std::to_string(time.weekday == 0 ? 7 : time.weekday);
    case 'U':
      return two((time.year_day + 7 - time.weekday) / 7);
    case 'V':
      return two(WeekOf(time).week);
    case 'w':
      return std::to_string(time.weekday);
    case 'W':
      return two((time.year_day + 7 - (time.weekday + 6) % 7) / 7);
    case 'y':
      return two(time.year % 100);
    case 'Y':
      return std::to_string(time.year);
    case 'z':
    case 'Z':
      return "";  // a datetime without time zone
    case '%':
      return "%";
    default:
      break;
  }
  return std::string("%") + (flag == 0 ? "" : std::string(1, flag)) + directive;
}

}  // namespace

Result<std::string> FormatTime(std::string_view format, int64_t local_seconds) {
  // The first second of year 1 and the last of year 9999, the range of a datetime.
  if (local_seconds < -62135596800 || local_seconds > 253402300799) {
    return TemplateError("strftime_now: the time lies outside of the years 1 to 9999");
  }
  return Expand(format, Split(local_seconds));
}

}  // namespace kvasir::chat
