#include "kvasir/tokenizer/decoder.h"

#include <algorithm>
#include <utility>

#include "kvasir/tokenizer/byte_alphabet.h"
#include "kvasir/tokenizer/component_json.h"
#include "kvasir/tokenizer/utf8.h"

namespace kvasir {
namespace {

// A chain of replacements may double the text at each step; beyond this it stops replacing.
constexpr size_t kMaxGrowth = 64;
constexpr size_t kGrowthSlackBytes = 4096;

std::optional<uint8_t> HexDigit(char digit) {
  if (digit >= '0' && digit <= '9') return static_cast<uint8_t>(digit - '0');
  if (digit >= 'A' && digit <= 'F') return static_cast<uint8_t>(digit - 'A' + 10);
  if (digit >= 'a' && digit <= 'f') return static_cast<uint8_t>(digit - 'a' + 10);
  return std::nullopt;
}

// The byte of "<0xE2>".
std::optional<char> ByteOfToken(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
  const std::optional<uint8_t> high = HexDigit(token[3]);
  const std::optional<uint8_t> low = HexDigit(token[4]);
  if (!high.has_value() || !low.has_value()) return std::nullopt;
  return static_cast<char>(*high << 4 | *low);
}

std::string Join(const std::vector<std::string>& tokens, std::string_view separator) {
  std::string text;
  for (const std::string& token : tokens) {
    if (&token != &tokens.front()) text += separator;
    text += token;
  }
  return text;
}

std::string ReplaceMatches(const std::vector<TextSpan>& matches, std::string_view content,
                           std::string_view text, size_t limit_bytes) {
  std::string replaced;
  size_t kept = 0;
  for (const TextSpan& match : matches) {
    const size_t rest_bytes = text.size() - match.end;
    const size_t before_bytes = match.begin - kept;
    if (content.size() > match.end - match.begin &&
        replaced.size() + before_bytes + content.size() + rest_bytes > limit_bytes) {
      break;
    }
    replaced += text.substr(kept, match.begin - kept);
    replaced += content;
    kept = match.end;
  }
  replaced += text.substr(kept);
  return replaced;
}

std::string ReplaceAll(std::string_view text, std::string_view wanted, std::string_view content,
                       size_t limit_bytes) {
  std::vector<TextSpan> matches;
  for (size_t at = text.find(wanted); at != std::string_view::npos;
       at = text.find(wanted, at + wanted.size())) {
    matches.push_back({at, at + wanted.size()});
  }
  return ReplaceMatches(matches, content, text, limit_bytes);
}

std::string StripCharacter(std::string_view text, std::string_view character, int64_t start,
                           int64_t stop) {
  for (; start > 0 && text.starts_with(character); --start) text.remove_prefix(character.size());
  for (; stop > 0 && text.ends_with(character); --stop) text.remove_suffix(character.size());
  return std::string(text);
}

// Every run of byte tokens becomes one token: its characters, or one U+FFFD per byte.
void FallBackToBytes(std::vector<std::string>* tokens) {
  std::vector<std::string> result;
  std::string run;
  const auto flush = [&] {
    if (run.empty()) return;
    if (IsValidUtf8(run)) {
      result.push_back(run);
    } else {
      for (size_t i = 0; i < run.size(); ++i) result.emplace_back(kReplacementCharacter);
    }
    run.clear();
  };
  for (std::string& token : *tokens) {
    if (const std::optional<char> byte = ByteOfToken(token); byte.has_value()) {
      run.push_back(*byte);
    } else {
      flush();
      result.push_back(std::move(token));
    }
  }
  flush();
  *tokens = std::move(result);
}

bool IsFirst(Decoder::Place place) {
  return place == Decoder::Place::kFirst || place == Decoder::Place::kOnly;
}
bool IsLast(Decoder::Place place) {
  return place == Decoder::Place::kLast || place == Decoder::Place::kOnly;
}

Decoder::Place PlaceOf(size_t index, size_t size) {
  if (size == 1) return Decoder::Place::kOnly;
  if (index == 0) return Decoder::Place::kFirst;
  return index + 1 == size ? Decoder::Place::kLast : Decoder::Place::kMiddle;
}

}  // namespace

Result<Decoder> Decoder::FromJson(const Json& json) {
  Decoder decoder;
  if (json.is_null()) {
    Step join;
    join.kind = Kind::kJoinWithSpaces;
    decoder.steps_.push_back(std::move(join));
  } else {
    KVASIR_TRY_OK(decoder.Read(json));
  }
  decoder.DeriveRules();
  return decoder;
}

Status Decoder::Read(const Json& json) {
  KVASIR_TRY(const std::string type, ComponentType(json));
  if (type == "Sequence") {
    return ForEachComponent(json, "decoders", [&](const Json& part) { return Read(part); });
  }
  KVASIR_TRY(Step step, ReadStep(json, type));
  steps_.push_back(std::move(step));
  return {};
}

Result<Decoder::Step> Decoder::ReadStep(const Json& json, std::string_view type) {
  Step step;
  if (type == "ByteLevel") {
    step.kind = Kind::kByteLevel;
  } else if (type == "ByteFallback") {
    step.kind = Kind::kByteFallback;
  } else if (type == "Fuse") {
    step.kind = Kind::kFuse;
  } else if (type == "Metaspace") {
    step.kind = Kind::kMetaspace;
    KVASIR_TRY(step.text, GetCharacter(json, "replacement"));
    KVASIR_TRY(const bool add_prefix_space, json.GetBoolOr("add_prefix_space", true));
    KVASIR_TRY(const std::string scheme,
               json.GetStringOr("prepend_scheme", add_prefix_space ? "always" : "never"));
    step.drops_first_mark = scheme != "never";
  } else if (type == "Strip") {
    step.kind = Kind::kStrip;
    KVASIR_TRY(step.text, GetCharacter(json, "content"));
    KVASIR_TRY(step.start, json.GetIntOr("start", 0));
    KVASIR_TRY(step.stop, json.GetIntOr("stop", 0));
    if (step.start < 0 || step.stop < 0) {
      return {ErrorCode::kCorrupt, "fields 'start' and 'stop' must not be negative"};
    }
  } else if (type == "Replace") {
    step.kind = Kind::kReplace;
    KVASIR_TRY(step.pattern, Pattern::FromJson(json));
    KVASIR_TRY(step.text, json.GetString("content"));
  } else if (type == "BPEDecoder") {
    step.kind = Kind::kSuffixToSpace;
    KVASIR_TRY(step.text, json.GetStringOr("suffix", "</w>"));
    if (step.text.empty()) return {ErrorCode::kCorrupt, "field 'suffix' must not be empty"};
  } else {
    return UnsupportedType(
        type, "Sequence, ByteLevel, Metaspace, ByteFallback, Fuse, Strip, Replace, BPEDecoder");
  }
  return step;
}

// Steps on single tokens come first, then at most one step that joins, then one that strips the
// text's beginning. All published decoders have this shape; others decode as a whole.
void Decoder::DeriveRules() {
  enum class Phase { kTokens, kChunks, kText };
  Phase phase = Phase::kTokens;
  for (const Step& step : steps_) {
    const bool joins = step.kind == Kind::kFuse || step.kind == Kind::kByteLevel ||
                       step.kind == Kind::kJoinWithSpaces;
    if (phase == Phase::kTokens) {
      if (step.kind != Kind::kFuse) ++token_steps_;
      rules_.has_raw_bytes |= step.kind == Kind::kByteLevel;
      rules_.needs_lookahead |= step.kind == Kind::kSuffixToSpace;
      if (joins) {
        phase = Phase::kText;
      } else if (step.kind == Kind::kByteFallback) {
        phase = Phase::kChunks;
      }
    } else if (step.kind == Kind::kFuse) {
      phase = Phase::kText;
    } else if (phase == Phase::kText && step.kind == Kind::kStrip && step.stop == 0 &&
               rules_.strip_characters == 0) {
      rules_.strip_characters = step.start;
      rules_.strip_character = step.text;
    } else {
      rules_.can_stream = false;
    }
  }
}

std::string Decoder::Decode(std::vector<std::string> tokens) const {
  size_t size_bytes = 0;
  for (const std::string& token : tokens) size_bytes += token.size();
  const size_t limit_bytes = kMaxGrowth * size_bytes + kGrowthSlackBytes;
  for (const Step& step : steps_) ApplyStep(step, limit_bytes, &tokens);
  return Join(tokens, "");
}

void Decoder::ApplyStep(const Step& step, size_t limit_bytes,
                        std::vector<std::string>* tokens) const {
  switch (step.kind) {
    case Kind::kJoinWithSpaces:
      *tokens = {Join(*tokens, " ")};
      return;
    case Kind::kFuse:
      *tokens = {Join(*tokens, "")};
      return;
    case Kind::kByteFallback:
      return FallBackToBytes(tokens);
    case Kind::kByteLevel: {
      std::string bytes;
      for (const std::string& token : *tokens) bytes += BytesOfCharacters(token);
      *tokens = {ToValidUtf8(bytes)};
      return;
    }
    default:
      break;
  }
  size_t written_bytes = 0;
  for (size_t i = 0; i < tokens->size(); ++i) {
    std::string& token = (*tokens)[i];
    if (written_bytes < limit_bytes) {
      token = ApplyToToken(step, std::move(token), PlaceOf(i, tokens->size()),
                           limit_bytes - written_bytes);
    }
    written_bytes += token.size();
  }
}

std::string Decoder::ApplyToToken(const Step& step, std::string token, Place place,
                                  size_t limit_bytes) {
  switch (step.kind) {
    case Kind::kMetaspace:
      return ReplaceAll(token, step.text, IsFirst(place) && step.drops_first_mark ? "" : " ",
                        limit_bytes);
    case Kind::kSuffixToSpace:
      return ReplaceAll(token, step.text, IsLast(place) ? "" : " ", limit_bytes);
    case Kind::kStrip:
      return StripCharacter(token, step.text, step.start, step.stop);
    case Kind::kReplace: {
      std::vector<TextSpan> matches;
      Pattern::Finder(*step.pattern).FindAll(token, &matches);
      return ReplaceMatches(matches, step.text, token, limit_bytes);
    }
    case Kind::kByteLevel:
      return BytesOfCharacters(token);
    case Kind::kJoinWithSpaces:
      return IsFirst(place) ? token : " " + token;
    case Kind::kByteFallback:
    case Kind::kFuse:
      break;
  }
  return token;
}

Decoder::TokenPiece Decoder::PieceOf(std::string_view token, Place place) const {
  const size_t limit_bytes = kMaxGrowth * token.size() + kGrowthSlackBytes;
  TokenPiece piece{std::string(token), false};
  for (size_t i = 0; i < token_steps_; ++i) {
    if (steps_[i].kind == Kind::kByteFallback) {
      if (const std::optional<char> byte = ByteOfToken(piece.bytes); byte.has_value()) {
        return {std::string(1, *byte), true};
      }
    } else {
      piece.bytes = ApplyToToken(steps_[i], std::move(piece.bytes), place, limit_bytes);
    }
  }
  return piece;
}

}  // namespace kvasir
