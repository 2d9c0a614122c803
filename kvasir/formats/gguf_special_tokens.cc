#include "kvasir/formats/gguf_special_tokens.h"

#include <algorithm>
#include <iterator>
#include <limits>

#include "kvasir/formats/stop_texts.h"

namespace kvasir {
namespace {

constexpr std::string_view kGemmaMarks[] = {"<bos>",           "<eos>",         "<pad>",
                                            "<start_of_turn>", "<end_of_turn>", "<start_of_image>",
                                            "<end_of_image>",  "<|turn>",       "<turn|>"};
// Models have a handful; the bound keeps a hostile list from becoming work in every step.
constexpr size_t kMaxStops = 1024;

bool IsStop(std::string_view text, GgufTokenKind kind) {
  const bool is_control = kind == GgufTokenKind::kControl;
  // Of other kinds it is a tag of HTML.
  if (text == "</s>") return is_control;
  return (is_control || kind == GgufTokenKind::kUserDefined) && IsStopText(text);
}

// `is_needed`: an id outside the vocabulary is an error, not none.
Result<std::optional<Token>> ReadId(const GgufMetadata& metadata, std::string_view name,
                                    size_t tokens, bool is_needed = true) {
  const std::string key = "tokenizer.ggml." + std::string(name) + "_token_id";
  if (!metadata.Has(key)) return std::optional<Token>();
  KVASIR_TRY(const int64_t id, metadata.Int(key));
  // Some writers say "none" with -1, stored without a sign.
  if (id == -1 || id == 0xFFFFFFFF) return std::optional<Token>();
  // A file without a vocabulary may say which ids its model was trained with.
  const uint64_t end = tokens == 0 ? uint64_t{std::numeric_limits<Token>::max()} : tokens;
  if (id < 0 || static_cast<uint64_t>(id) >= end) {
    if (!is_needed) return std::optional<Token>();
    return {ErrorCode::kCorrupt, "metadata '" + key + "' is " + std::to_string(id) +
                                     ", outside the vocabulary of " + std::to_string(end)};
  }
  return std::optional<Token>(static_cast<Token>(id));
}

}  // namespace

GgufTokenKind GgufKindOf(std::string_view text, int64_t kind, std::string_view architecture) {
  const auto said = static_cast<GgufTokenKind>(kind);
  const bool is_mark =
      said == GgufTokenKind::kNormal && architecture.starts_with("gemma") &&
      std::find(std::begin(kGemmaMarks), std::end(kGemmaMarks), text) != std::end(kGemmaMarks);
  return is_mark ? GgufTokenKind::kControl : said;
}

Result<GgufSpecialTokens> GgufSpecialTokens::Read(const GgufMetadata& metadata) {
  KVASIR_TRY(const auto tokens, metadata.Strings("tokenizer.ggml.tokens"));
  KVASIR_TRY(const auto kinds, metadata.Ints("tokenizer.ggml.token_type"));
  GgufSpecialTokens special;
  KVASIR_TRY(special.bos, ReadId(metadata, "bos", tokens.size()));
  KVASIR_TRY(special.eos, ReadId(metadata, "eos", tokens.size()));
  KVASIR_TRY(special.unknown, ReadId(metadata, "unknown", tokens.size(), false));
  KVASIR_TRY(special.pad, ReadId(metadata, "padding", tokens.size(), false));
  std::vector<Token>& stops = special.stops;
  const bool has_rows_of_messages =
      std::find(tokens.begin(), tokens.end(), kAnswerEnd) != tokens.end();
  const auto add = [&](Token id) {
    const auto place = static_cast<size_t>(id);
    if (has_rows_of_messages && place < tokens.size() && tokens[place] == kMessageEnd) return;
    if (std::find(stops.begin(), stops.end(), id) == stops.end()) stops.push_back(id);
  };
  if (special.eos) add(*special.eos);
  for (const std::string_view name : {"eot", "eom"}) {
    KVASIR_TRY(const std::optional<Token> id, ReadId(metadata, name, tokens.size()));
    if (id) add(*id);
  }
  KVASIR_TRY(const std::string architecture, metadata.TextOr("general.architecture", ""));
  for (size_t i = 0; i < std::min(tokens.size(), kinds.size()); ++i) {
    if (!IsStop(tokens[i], GgufKindOf(tokens[i], kinds[i], architecture))) continue;
    if (stops.size() == kMaxStops) {
      return {ErrorCode::kCorrupt, "metadata 'tokenizer.ggml.tokens': more than " +
                                       std::to_string(kMaxStops) + " tokens end an answer"};
    }
    add(static_cast<Token>(i));
  }
  return special;
}

Json GgufSpecialTokens::Texts(const std::vector<std::string_view>& tokens) const {
  Json texts = Json::Object();
  const auto set = [&](std::string_view name, std::optional<Token> id) {
    if (id && static_cast<size_t>(*id) < tokens.size()) {
      texts.Set(name, tokens[static_cast<size_t>(*id)]);
    }
  };
  set("bos_token", bos);
  set("eos_token", eos);
  set("unk_token", unknown);
  set("pad_token", pad);
  return texts;
}

}  // namespace kvasir
