#include "kvasir/kv/retention_spec.h"

#include <charconv>

#include "kvasir/tensor/kv_codec.h"

namespace kvasir {
namespace {

constexpr RowScore kRowScores[] = {
    RowScore::kKnorm,     RowScore::kKnormHigh, RowScore::kKeyDiff,           RowScore::kLagKv,
    RowScore::kStreaming, RowScore::kTova,      RowScore::kExpectedAttention, RowScore::kRandom,
};

// Not negative, or -1 if `digits` is no such number.
int64_t NumberOf(std::string_view digits) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  return whole && number >= 0 ? number : -1;
}

// "key=value" into the field it names; false if `option` means nothing to this kind.
bool SetOption(std::string_view option, RetentionSpec* spec) {
  const bool budget = spec->kind == RetentionSpec::Kind::kBudget;
  if (option == "per-layer" && budget) {
    spec->per_layer = true;
    return true;
  }
  const size_t equals = option.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string_view key = option.substr(0, equals);
  const std::string_view value = option.substr(equals + 1);
  if (key == "score" && budget) {
    const auto score = RowScoreFromName(value);
    if (score.ok()) spec->score = *score;
    return score.ok();
  }
  int64_t* field = nullptr;
  if (key == "keep" && (budget || spec->kind == RetentionSpec::Kind::kWindow)) field = &spec->keep;
  if (key == "recent" && budget) field = &spec->recent;
  if (key == "interval" && budget) field = &spec->interval;
  if (field == nullptr) return false;
  *field = NumberOf(value);
  return *field >= 0;
}

// False if `name` is not of a form that RetentionSpec::name writes.
bool Parse(std::string_view name, RetentionSpec* spec) {
  if (name == "all") return true;
  const size_t colon = name.find(':');
  if (colon == std::string_view::npos) return false;
  const std::string_view kind = name.substr(0, colon);
  if (kind == "window") spec->kind = RetentionSpec::Kind::kWindow;
  if (kind == "chunk") spec->kind = RetentionSpec::Kind::kChunk;
  if (kind == "budget") spec->kind = RetentionSpec::Kind::kBudget;
  if (spec->kind == RetentionSpec::Kind::kAll) return false;
  std::string_view rest = name.substr(colon + 1);
  for (bool first = true; first || !rest.empty(); first = false) {
    const size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    if (comma != std::string_view::npos && rest.empty()) return false;
    if (first) {
      spec->size = NumberOf(part);
    } else if (!SetOption(part, spec)) {
      return false;
    }
  }
  return true;
}

std::string Option(const char* key, int64_t value) {
  if (value == 0) return "";
  return std::string(",").append(key).append("=").append(std::to_string(value));
}

std::string NumberIs(const char* field, int64_t value) {
  return std::string(field) + " is " + std::to_string(value);
}

}  // namespace

std::string_view RowScoreName(RowScore score) {
  switch (score) {
    case RowScore::kKnorm:
      return "knorm";
    case RowScore::kKnormHigh:
      return "knorm-high";
    case RowScore::kKeyDiff:
      return "keydiff";
    case RowScore::kLagKv:
      return "lagkv";
    case RowScore::kStreaming:
      return "streaming";
    case RowScore::kTova:
      return "tova";
    case RowScore::kExpectedAttention:
      return "expected-attention";
    case RowScore::kRandom:
      return "random";
  }
  return "";
}

Result<RowScore> RowScoreFromName(std::string_view name) {
  std::string names;
  for (const RowScore score : kRowScores) {
    if (RowScoreName(score) == name) return score;
    names.append(names.empty() ? "" : ", ").append(RowScoreName(score));
  }
  return {ErrorCode::kInvalidArgument,
          "row score '" + std::string(name) + "' is unknown; use one of " + names};
}

std::string RetentionSpec::name() const {
  switch (kind) {
    case Kind::kAll:
      return "all";
    case Kind::kWindow:
      return "window:" + std::to_string(size) + Option("keep", keep);
    case Kind::kChunk:
      return "chunk:" + std::to_string(size);
    case Kind::kBudget:
      return "budget:" + std::to_string(size) + Option("keep", keep) + Option("recent", recent) +
             Option("interval", interval) + ",score=" + std::string(RowScoreName(score)) +
             (per_layer ? ",per-layer" : "");
  }
  return "";
}

Result<RetentionSpec> RetentionSpec::FromName(std::string_view name) {
  RetentionSpec spec;
  if (!Parse(name, &spec)) {
    return {ErrorCode::kInvalidArgument,
            "retention '" + std::string(name) +
                "' is unknown; use all, window:TOKENS[,keep=N], chunk:TOKENS or "
                "budget:TOKENS[,keep=N][,recent=N][,interval=N][,score=NAME][,per-layer]"};
  }
  KVASIR_TRY_OK(spec.Validate());
  return spec;
}

Status RetentionSpec::Validate() const {
  const auto invalid = [this](const std::string& what) {
    return Status(ErrorCode::kInvalidArgument, "retention '" + name() + "': " + what);
  };
  const int64_t most = kind == Kind::kAll ? 0 : kMaxRetentionTokens;
  const int64_t least = kind == Kind::kAll ? 0 : 1;
  if (size < least || size > most) {
    return invalid(NumberIs("size", size) + ", it must be " +
                   (most == 0 ? "0" : "from 1 to " + std::to_string(most)));
  }
  const bool budget = kind == Kind::kBudget;
  if (!budget && (interval != 0 || recent != 0 || per_layer || score != RowScore::kKnorm)) {
    return invalid(
        "interval, recent, score and per_layer belong to a budget; leave them as they "
        "are");
  }
  if (kind == Kind::kWindow && (keep < 0 || keep >= size)) {
    return invalid(NumberIs("keep", keep) + ", it must be 0 or more and less than size");
  }
  if (!budget) {
    if (kind == Kind::kWindow || keep == 0) return {};
    return invalid("keep belongs to a window or a budget; leave it 0");
  }
  if (keep < 0 || recent < 0 || keep > size || recent > size - keep) {
    return invalid(NumberIs("keep", keep) + " and " + NumberIs("recent", recent) +
                   "; together they must be from 0 to size");
  }
  if (interval < 0 || interval > kMaxRetentionTokens) {
    return invalid(NumberIs("interval", interval) + ", it must be from 0 to " +
                   std::to_string(kMaxRetentionTokens));
  }
  if (interval > 0 && (size % kBlockTokens != 0 || interval % kBlockTokens != 0)) {
    return invalid("size and interval must be multiples of " + std::to_string(kBlockTokens) +
                   " (interval 0: only Compact evicts, and any size is right)");
  }
  return {};
}

}  // namespace kvasir
