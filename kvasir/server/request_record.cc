#include "kvasir/server/request_record.h"

#include <cmath>
#include <cstdio>

namespace kvasir {
namespace {

double Rounded(double value) { return std::round(value * 10) / 10; }

std::string Tenths(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f", value);
  return text;
}

}  // namespace

std::string RecordLine(const RequestRecord& record) {
  std::string line = record.path + " " + std::to_string(record.status) + ": " +
                     std::to_string(record.prompt_tokens) + " prompt tokens (" +
                     std::to_string(record.cached_tokens) + " cached, " +
                     std::to_string(record.prompt_tokens - record.cached_tokens) +
                     " new, parted from the cache at " + std::to_string(record.known_tokens) +
                     "), " + std::to_string(record.generated_tokens) + " generated";
  if (record.first_token_ms) {
    line += ", the first after " + Tenths(*record.first_token_ms) + " ms, then " +
            Tenths(record.decode_tokens_per_second) + " per second";
  }
  line += ", " + Tenths(record.total_ms) + " ms";
  if (!record.finish.empty()) line += ", " + record.finish;
  if (!record.error.empty()) line += ", failed: " + record.error;
  return line;
}

Json RecordJson(const RequestRecord& record) {
  return Json::Object{
      {"path", record.path},
      {"status", record.status},
      {"prompt_tokens", record.prompt_tokens},
      {"cached_tokens", record.cached_tokens},
      {"new_tokens", record.prompt_tokens - record.cached_tokens},
      {"known_tokens", record.known_tokens},
      {"generated_tokens", record.generated_tokens},
      {"first_token_ms", record.first_token_ms ? Json(Rounded(*record.first_token_ms)) : Json()},
      {"tokens_per_second", Rounded(record.decode_tokens_per_second)},
      {"total_ms", Rounded(record.total_ms)},
      {"finish_reason", record.finish},
      {"error", record.error.empty() ? Json() : Json(record.error)}};
}

}  // namespace kvasir
