#include "kvasir/convert/gguf_tokenizer_pairs.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kvasir/formats/gguf_pre_tokenizer.h"
#include "kvasir/formats/gguf_special_tokens.h"
#include "kvasir/formats/gguf_tokenizer.h"
#include "kvasir/tokenizer/tokenizer.h"

namespace kvasir {
namespace {

// Of those that cut alike, one name.
constexpr std::array<std::string_view, 8> kPreTokenizers = {
    "llama-bpe", "qwen2", "deepseek-r1-qwen", "qwen35",
    "tekken",    "gpt-2", "smollm",           "deepseek-coder"};

uint32_t U32(int64_t value) { return static_cast<uint32_t>(value); }

// Regular expressions of a pre_tokenizer, in order; also of the steps that have one of their own.
void CollectPatterns(const Json& json, std::vector<std::string>* patterns) {
  if (json.is_array()) {
    for (const Json& part : json.as_array()) CollectPatterns(part, patterns);
  }
  if (!json.is_object()) return;
  const Json* const type = json.Find("type");
  if (type != nullptr && *type == Json("Digits")) {
    const auto each = json.GetBoolOr("individual_digits", false);
    patterns->push_back(each.ok() && *each ? R"(\p{N})" : R"(\p{N}+)");
  } else if (type != nullptr && *type == Json("ByteLevel")) {
    const auto cuts = json.GetBoolOr("use_regex", true);
    if (cuts.ok() && *cuts) {
      patterns->push_back(std::string(FindGgufPreTokenizer("gpt-2")->patterns[0]));
    }
  }
  for (const auto& [key, value] : json.as_object()) {
    if (key == "Regex" && value.is_string()) patterns->push_back(value.as_string());
    CollectPatterns(value, patterns);
  }
}

// The name under which readers of GGUF know this way to cut text.
Result<std::string> PreTokenizerName(const Json& tokenizer, const Json& model) {
  std::vector<std::string> patterns;
  const Json* const cuts = tokenizer.Find("pre_tokenizer");
  if (cuts != nullptr) CollectPatterns(*cuts, &patterns);
  const auto ignores = model.GetBoolOr("ignore_merges", false);
  const Json* const normalizer = tokenizer.Find("normalizer");
  const bool normalizes = normalizer != nullptr && !normalizer->is_null();
  for (const std::string_view name : kPreTokenizers) {
    const GgufPreTokenizer& pre = *FindGgufPreTokenizer(name);
    const bool same =
        std::equal(patterns.begin(), patterns.end(), pre.patterns.begin(), pre.patterns.end());
    if (same && ignores.ok() && *ignores == pre.ignores_merges && normalizes == pre.normalizes) {
      return std::string(name);
    }
  }
  return {ErrorCode::kUnsupported, "its pre_tokenizer has no name in GGUF files"};
}

using Merges = std::vector<std::pair<std::string, std::string>>;

Result<Merges> ReadMerges(const Json& model) {
  const Json* const list = model.Find("merges");
  if (list == nullptr || !list->is_array()) {
    return {ErrorCode::kCorrupt, "field 'model.merges' must be an array"};
  }
  Merges merges;
  for (const Json& merge : list->as_array()) {
    if (merge.is_array() && merge.as_array().size() == 2 && merge.as_array()[0].is_string() &&
        merge.as_array()[1].is_string()) {
      merges.emplace_back(merge.as_array()[0].as_string(), merge.as_array()[1].as_string());
      continue;
    }
    const size_t blank = merge.is_string() ? merge.as_string().find(' ', 1) : std::string::npos;
    if (blank == std::string::npos) {
      return {ErrorCode::kCorrupt, "field 'model.merges' must hold pairs of texts"};
    }
    merges.emplace_back(merge.as_string().substr(0, blank), merge.as_string().substr(blank + 1));
  }
  return merges;
}

struct Vocabulary {
  std::vector<std::string> tokens;
  std::vector<int32_t> kinds;

  void SetKind(size_t id, GgufTokenKind kind) { kinds[id] = static_cast<int32_t>(kind); }
  bool IsKind(size_t id, GgufTokenKind kind) const {
    return kinds[id] == static_cast<int32_t>(kind);
  }
};

Vocabulary ReadVocabulary(const Json& json, const Tokenizer& tokenizer, int64_t rows) {
  Vocabulary vocabulary;
  for (Token id = 0; id < rows; ++id) {
    std::string text = tokenizer.TokenText(id);
    GgufTokenKind kind = tokenizer.IsSpecial(id) ? GgufTokenKind::kControl : GgufTokenKind::kNormal;
    if (text.empty()) {
      text = "[PAD" + std::to_string(id) + "]";
      kind = GgufTokenKind::kUnused;
    }
    vocabulary.tokens.push_back(std::move(text));
    vocabulary.kinds.push_back(static_cast<int32_t>(kind));
  }
  const Json* const added = json.Find("added_tokens");
  if (added == nullptr || !added->is_array()) return vocabulary;
  for (const Json& token : added->as_array()) {
    const auto id = token.GetInt("id");
    if (!id.ok() || *id < 0 || *id >= rows) continue;
    if (vocabulary.IsKind(static_cast<size_t>(*id), GgufTokenKind::kNormal)) {
      vocabulary.SetKind(static_cast<size_t>(*id), GgufTokenKind::kUserDefined);
    }
  }
  return vocabulary;
}

void AddMerges(const Merges& merges, GgufPairs* pairs) {
  std::vector<std::string> texts;
  for (const auto& [left, right] : merges) texts.push_back(left + " " + right);
  pairs->AddTexts("tokenizer.ggml.merges", texts);
}

// SentencePiece joins what has the highest score. Merges come in groups of one result each, best
// first: a token's score says how late its group comes.
std::vector<float> Scores(const Merges& merges, const Vocabulary& vocabulary) {
  constexpr float kNever = -1e9f;
  std::unordered_map<std::string, float> groups;
  for (const auto& [left, right] : merges) {
    groups.emplace(left + right, -static_cast<float>(groups.size()));
  }
  std::vector<float> scores;
  for (const std::string& token : vocabulary.tokens) {
    const auto found = groups.find(token);
    scores.push_back(found == groups.end() ? kNever : found->second);
  }
  return scores;
}

// Whether a text gets a blank in front: a normalizer or a Metaspace pre-tokenizer says so.
bool AddsSpace(const Json& tokenizer) {
  const auto text = [&](const char* field) {
    const Json* const found = tokenizer.Find(field);
    return found == nullptr ? std::string() : found->Dump();
  };
  const std::string cuts = text("pre_tokenizer");
  return text("normalizer").find("\"Prepend\"") != std::string::npos ||
         (cuts.find("\"Metaspace\"") != std::string::npos &&
          cuts.find("\"prepend_scheme\":\"never\"") == std::string::npos &&
          cuts.find("\"add_prefix_space\":false") == std::string::npos);
}

void MarkPieces(const Json& model, const Tokenizer& tokenizer, Vocabulary* vocabulary,
                GgufPairs* pairs) {
  constexpr size_t kByteLength = 6;  // "<0x0A>"
  for (size_t id = 0; id < vocabulary->tokens.size(); ++id) {
    const std::string& text = vocabulary->tokens[id];
    if (text.size() == kByteLength && text.starts_with("<0x") && text.ends_with(">")) {
      vocabulary->SetKind(id, GgufTokenKind::kByte);
    }
  }
  const auto unknown = model.GetStringOr("unk_token", "");
  const auto id = unknown.ok() ? tokenizer.TokenToId(*unknown) : std::nullopt;
  if (!id || static_cast<size_t>(*id) >= vocabulary->tokens.size()) return;
  vocabulary->SetKind(static_cast<size_t>(*id), GgufTokenKind::kUnknown);
  pairs->AddU32("tokenizer.ggml.unknown_token_id", U32(*id));
}

Status AddPieces(const Json& json, const Json& model, const Tokenizer& tokenizer,
                 const ModelConfig& config, GgufPairs* pairs) {
  Vocabulary vocabulary = ReadVocabulary(json, tokenizer, config.vocab_size);
  KVASIR_TRY(const Merges merges, ReadMerges(model));
  MarkPieces(model, tokenizer, &vocabulary, pairs);
  const bool is_gemma4 = config.family == ModelFamily::kGemma4;
  pairs->Add("tokenizer.ggml.model", is_gemma4 ? "gemma4" : "llama");
  pairs->AddBool("tokenizer.ggml.add_space_prefix", AddsSpace(json));
  pairs->AddTexts("tokenizer.ggml.tokens", vocabulary.tokens);
  pairs->AddI32s("tokenizer.ggml.token_type", vocabulary.kinds);
  pairs->AddF32s("tokenizer.ggml.scores", Scores(merges, vocabulary));
  if (is_gemma4) AddMerges(merges, pairs);
  return {};
}

Status AddByteLevel(const Json& json, const Json& model, const Tokenizer& tokenizer,
                    const ModelConfig& config, std::optional<Token> unknown, GgufPairs* pairs) {
  KVASIR_TRY(const std::string pre, PreTokenizerName(json, model));
  KVASIR_TRY(const Merges merges, ReadMerges(model));
  const Vocabulary vocabulary = ReadVocabulary(json, tokenizer, config.vocab_size);
  pairs->Add("tokenizer.ggml.model", "gpt2");
  pairs->Add("tokenizer.ggml.pre", pre);
  pairs->AddTexts("tokenizer.ggml.tokens", vocabulary.tokens);
  pairs->AddI32s("tokenizer.ggml.token_type", vocabulary.kinds);
  if (unknown) pairs->AddU32("tokenizer.ggml.unknown_token_id", U32(*unknown));
  AddMerges(merges, pairs);
  return {};
}

// `unknown` is for byte-level ones, whose model needs none.
Status AddModel(const Json& json, const Tokenizer& tokenizer, const ModelConfig& config,
                std::optional<Token> unknown, GgufPairs* pairs) {
  const Json* const model = json.Find("model");
  const Json* const cuts = json.Find("pre_tokenizer");
  const Json* const type = model == nullptr ? nullptr : model->Find("type");
  if (model != nullptr && (type == nullptr || *type == Json("BPE"))) {
    if (cuts != nullptr && cuts->Dump().find("\"ByteLevel\"") != std::string::npos) {
      return AddByteLevel(json, *model, tokenizer, config, unknown, pairs);
    }
    const auto falls_back = model->GetBoolOr("byte_fallback", false);
    if (falls_back.ok() && *falls_back) return AddPieces(json, *model, tokenizer, config, pairs);
  }
  return {ErrorCode::kUnsupported,
          "only BPE tokenizers, byte-level or with byte_fallback, are written to GGUF files"};
}

void AddSpecial(const ModelConfig& config, GgufPairs* pairs) {
  if (config.bos_token_id) pairs->AddU32("tokenizer.ggml.bos_token_id", U32(*config.bos_token_id));
  if (!config.eos_token_ids.empty()) {
    pairs->AddU32("tokenizer.ggml.eos_token_id", U32(config.eos_token_ids.front()));
  }
  // A second one usually ends turns, a third messages.
  for (const auto& [index, name] : {std::pair<size_t, const char*>{1, "eot"}, {2, "eom"}}) {
    if (config.eos_token_ids.size() <= index) break;
    pairs->AddU32("tokenizer.ggml." + std::string(name) + "_token_id",
                  U32(config.eos_token_ids[index]));
  }
  if (config.pad_token_id) {
    pairs->AddU32("tokenizer.ggml.padding_token_id", U32(*config.pad_token_id));
  }
  if (config.suppressed_tokens.empty()) return;
  pairs->AddI32s("tokenizer.ggml.suppress_tokens",
                 {config.suppressed_tokens.begin(), config.suppressed_tokens.end()});
}

// Added tokens that take the blanks beside them, which GGUF does not record.
std::vector<bool> Strips(const Json& json, int64_t rows) {
  std::vector<bool> strips(static_cast<size_t>(rows), false);
  const Json* const added = json.Find("added_tokens");
  if (added == nullptr || !added->is_array()) return strips;
  for (const Json& token : added->as_array()) {
    const auto id = token.GetInt("id");
    if (!id.ok() || *id < 0 || *id >= rows) continue;
    for (const char* field : {"lstrip", "rstrip"}) {
      const auto flag = token.GetBoolOr(field, false);
      if (flag.ok() && *flag) strips[static_cast<size_t>(*id)] = true;
    }
  }
  return strips;
}

// What usually goes wrong, and every token's text as one. None begins with a blank: GGUF files add
// one to those, too.
std::vector<std::string> Probes(const Json& json, const Tokenizer& tokenizer, int64_t rows) {
  std::vector<std::string> probes = {"Hello world",
                                     "trailing  ",
                                     "two  blanks\n\n\n\tlines\r\n",
                                     "it's 1234567, don't WE'LL",
                                     "caf\u00e9 e\u0301 \u65e5\u672c\u8a9e \U0001F642 \u2581",
                                     "\u00a0x \U00010348"};
  const std::vector<bool> strips = Strips(json, rows);
  std::string all = "all";
  for (Token id = 0; id < rows; ++id) {
    if (tokenizer.IsSpecial(id) || strips[static_cast<size_t>(id)]) continue;
    all += ' ';
    all += tokenizer.TokenBytes(id);
  }
  probes.push_back(std::move(all));
  return probes;
}

// Files have three names for tokens that end an answer; others are known by their text, or not.
Status CheckStops(const GgufMetadata& metadata, const ModelConfig& config) {
  KVASIR_TRY(const GgufSpecialTokens special, GgufSpecialTokens::Read(metadata));
  for (const Token stop : config.eos_token_ids) {
    const auto& stops = special.stops;
    if (std::find(stops.begin(), stops.end(), stop) != stops.end()) continue;
    return {ErrorCode::kUnsupported, "a GGUF file cannot say that token " + std::to_string(stop) +
                                         " ends an answer, beside " +
                                         std::to_string(config.eos_token_ids.size() - 1) +
                                         " others"};
  }
  return {};
}

// What a tokenizer puts around a text.
struct Around {
  std::optional<Token> first;
  std::optional<Token> last;
};

Around AroundTexts(const Tokenizer& tokenizer) {
  const std::vector<Token> plain = tokenizer.Encode("a", {.add_special = false});
  const std::vector<Token> ids = tokenizer.Encode("a");
  Around around;
  if (plain.empty() || ids.size() <= plain.size()) return around;
  if (ids.front() != plain.front()) around.first = ids.front();
  if (ids.back() != plain.back()) around.last = ids.back();
  return around;
}

// ERRORS: kUnsupported when what was written gives other tokens for ordinary text, or does not put
// around it what the original does. (To Gemma 4's a reader adds a token by itself.)
Status CheckTokens(const GgufMetadata& metadata, const Json& original, const Tokenizer& tokenizer,
                   int64_t rows) {
  KVASIR_TRY(const Json json, GgufTokenizerJson(metadata));
  KVASIR_TRY(const auto written, Tokenizer::FromJson(json));
  const EncodeOptions plain = {.add_special = false, .parse_special = false};
  for (const std::string& probe : Probes(original, tokenizer, rows)) {
    if (written->Encode(probe, plain) == tokenizer.Encode(probe, plain)) continue;
    return {ErrorCode::kUnsupported, "a GGUF file cannot say how it makes tokens of '" +
                                         probe.substr(0, std::min<size_t>(probe.size(), 40)) + "'"};
  }
  const Around around = AroundTexts(tokenizer);
  if (!around.first && !around.last) return {};
  if (written->Encode("a") == tokenizer.Encode("a")) return {};
  return {ErrorCode::kUnsupported,
          "a GGUF file cannot say which special tokens it puts around a text"};
}

// The one of this name, default or tool_use, where ChatTemplateSet looks. Empty without one.
std::string TemplateOf(const ModelSource& source, std::string_view name) {
  const bool is_default = name == "default";
  const SourceFile* const whole = source.FindFile("chat_template.jinja");
  const SourceFile* const own =
      is_default ? whole : source.FindFile("additional_chat_templates/tool_use.jinja");
  if (own != nullptr) return own->contents;
  if (whole != nullptr) return {};
  for (const char* place : {"chat_template.json", "tokenizer_config.json"}) {
    const SourceFile* const file = source.FindFile(place);
    if (file == nullptr) continue;
    const auto json = Json::Parse(file->contents);
    const Json* const found = json.ok() ? json->Find("chat_template") : nullptr;
    if (found == nullptr) continue;
    if (found->is_string()) return is_default ? found->as_string() : std::string();
    if (!found->is_array()) continue;
    for (const Json& entry : found->as_array()) {
      const auto called = entry.GetString("name");
      const auto text = entry.GetString("template");
      if (called.ok() && *called == name && text.ok()) return *text;
    }
  }
  return {};
}

// What chat templates call "eos_token" and so on: tokenizer_config.json names it by its text. None
// without a row of the embedding.
std::optional<Token> NamedToken(const ModelSource& source, const Tokenizer& tokenizer, int64_t rows,
                                const char* name) {
  const SourceFile* const file = source.FindFile("tokenizer_config.json");
  const auto json = file == nullptr ? Result<Json>(Json()) : Json::Parse(file->contents);
  const Json* const token = json.ok() ? json->Find(name) : nullptr;
  if (token == nullptr) return std::nullopt;
  const Json* const text = token->is_object() ? token->Find("content") : token;
  if (text == nullptr || !text->is_string()) return std::nullopt;
  const std::optional<Token> id = tokenizer.TokenToId(text->as_string());
  return id && *id < rows ? id : std::nullopt;
}

// What config.json leaves out, and which of several stops is the one that templates write.
void AddNames(const ModelSource& source, const Tokenizer& tokenizer, ModelConfig* config) {
  const auto named = [&](const char* name) {
    return NamedToken(source, tokenizer, config->vocab_size, name);
  };
  if (const auto bos = named("bos_token")) config->bos_token_id = bos;
  if (!config->pad_token_id) config->pad_token_id = named("pad_token");
  std::vector<Token>& stops = config->eos_token_ids;
  const auto eos = named("eos_token");
  const auto at = eos ? std::find(stops.begin(), stops.end(), *eos) : stops.end();
  if (at != stops.end()) std::rotate(stops.begin(), at, at + 1);
}

Result<GgufMetadata> ReadBack(const GgufPairs& pairs) {
  BytesReader reader(std::as_bytes(std::span(pairs.bytes())));
  return GgufMetadata::Read(pairs.count(), &reader);
}

}  // namespace

Status AddGgufTokenizer(const ModelSource& source, const ModelConfig& declared, GgufPairs* pairs) {
  ModelConfig config = declared;
  const SourceFile* const file = source.FindFile("tokenizer.json");
  if (file == nullptr) {
    GgufPairs special;
    AddSpecial(config, &special);
    KVASIR_TRY(const GgufMetadata metadata, ReadBack(special));
    pairs->Append(special);
    return CheckStops(metadata, config);
  }
  KVASIR_TRY(const Json json, Json::Parse(file->contents));
  KVASIR_TRY(const auto tokenizer, Tokenizer::FromJson(json));
  GgufPairs own;
  AddNames(source, *tokenizer, &config);
  const auto unknown = NamedToken(source, *tokenizer, config.vocab_size, "unk_token");
  KVASIR_TRY_OK(AddModel(json, *tokenizer, config, unknown, &own));
  // What config.json calls so or leaves out does not matter where a token is put in front.
  const Around around = AroundTexts(*tokenizer);
  if (around.first) config.bos_token_id = around.first;
  own.AddBool("tokenizer.ggml.add_bos_token", around.first.has_value());
  if (around.last) own.AddBool("tokenizer.ggml.add_eos_token", true);
  AddSpecial(config, &own);
  KVASIR_TRY(const GgufMetadata metadata, ReadBack(own));
  KVASIR_TRY_OK(CheckStops(metadata, config));
  KVASIR_TRY_OK(CheckTokens(metadata, json, *tokenizer, config.vocab_size));
  pairs->Append(own);
  const std::string chat_template = TemplateOf(source, "default");
  if (chat_template.empty()) return {};
  pairs->Add("tokenizer.chat_template", chat_template);
  const std::string tool_use = TemplateOf(source, "tool_use");
  if (tool_use.empty()) return {};
  pairs->AddTexts("tokenizer.chat_templates", {"tool_use"});
  pairs->Add(kGgufToolTemplate, tool_use);
  return {};
}

}  // namespace kvasir
