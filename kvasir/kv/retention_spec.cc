#include "kvasir/kv/retention_spec.h"

#include <charconv>

namespace kvasir {
namespace {

constexpr std::string_view kWindowPrefix = "window:";
constexpr std::string_view kChunkPrefix = "chunk:";

// The number after `prefix`; 0, which no size may be, if `name` is not of that form.
int64_t SizeAfter(std::string_view name, std::string_view prefix) {
  if (!name.starts_with(prefix)) return 0;
  const std::string_view digits = name.substr(prefix.size());
  int64_t size = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), size);
  return error == std::errc() && end == digits.data() + digits.size() ? size : 0;
}

}  // namespace

std::string RetentionSpec::name() const {
  switch (kind) {
    case Kind::kAll:
      return "all";
    case Kind::kWindow:
      return std::string(kWindowPrefix) + std::to_string(size);
    case Kind::kChunk:
      return std::string(kChunkPrefix) + std::to_string(size);
    case Kind::kBudget:
      return "budget:" + std::to_string(size);
  }
  return "";
}

Result<RetentionSpec> RetentionSpec::FromName(std::string_view name) {
  RetentionSpec spec = All();
  if (name != "all") {
    const int64_t window = SizeAfter(name, kWindowPrefix);
    spec = window != 0 ? Window(window) : Chunk(SizeAfter(name, kChunkPrefix));
  }
  if (!spec.Validate().ok()) {
    return {ErrorCode::kInvalidArgument,
            "retention '" + std::string(name) +
                "' is unknown; use all, window:TOKENS or chunk:TOKENS with TOKENS from 1 to " +
                std::to_string(kMaxRetentionTokens)};
  }
  return spec;
}

Status RetentionSpec::Validate() const {
  const bool size_fits = kind == Kind::kAll ? size == 0 : size >= 1 && size <= kMaxRetentionTokens;
  if (size_fits) return {};
  return {ErrorCode::kInvalidArgument,
          "retention '" + name() + "': size is " + std::to_string(size) + ", it must be " +
              (kind == Kind::kAll ? "0" : "from 1 to " + std::to_string(kMaxRetentionTokens))};
}

}  // namespace kvasir
