#include "kvasir/convert/gguf_pairs_of.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvasir/convert/gguf_shape_pairs.h"
#include "kvasir/formats/gguf_pre_tokenizer.h"
#include "kvasir/formats/gguf_special_tokens.h"
#include "kvasir/tokenizer/tokenizer.h"

namespace kvasir {
namespace {

// Of those that cut alike, one name.
constexpr std::array<std::string_view, 7> kPreTokenizers = {
    "llama-bpe", "qwen2", "deepseek-r1-qwen", "qwen35", "tekken", "gpt-2", "smollm"};

uint32_t U32(int64_t value) { return static_cast<uint32_t>(value); }

const SourceFile* FindFile(const ModelSource& source, std::string_view name) {
  for (const SourceFile& file : source.files()) {
    if (file.name == name) return &file;
  }
  return nullptr;
}

// Regular expressions of a pre_tokenizer, in order.
void CollectPatterns(const Json& json, std::vector<std::string>* patterns) {
  if (json.is_array()) {
    for (const Json& part : json.as_array()) CollectPatterns(part, patterns);
  } else if (json.is_object()) {
    for (const auto& [key, value] : json.as_object()) {
      if (key == "Regex" && value.is_string()) patterns->push_back(value.as_string());
      CollectPatterns(value, patterns);
    }
  }
}

// The name under which readers of GGUF know this way to cut text.
Result<std::string> PreTokenizerName(const Json& tokenizer) {
  const Json* const model = tokenizer.Find("model");
  const Json* const cuts = tokenizer.Find("pre_tokenizer");
  const bool is_byte_level =
      cuts != nullptr && cuts->Dump().find("\"ByteLevel\"") != std::string::npos;
  const Json* const type = model == nullptr ? nullptr : model->Find("type");
  const bool is_bpe = model != nullptr && (type == nullptr || *type == Json("BPE"));
  if (!is_bpe || !is_byte_level) {
    return {ErrorCode::kUnsupported, "only byte-level BPE tokenizers are written to GGUF files"};
  }
  std::vector<std::string> patterns;
  CollectPatterns(*cuts, &patterns);
  const auto ignores = model->GetBoolOr("ignore_merges", false);
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

Result<std::vector<std::string>> MergeTexts(const Json& model) {
  std::vector<std::string> texts;
  const Json* const merges = model.Find("merges");
  if (merges == nullptr || !merges->is_array()) {
    return {ErrorCode::kCorrupt, "field 'model.merges' must be an array"};
  }
  for (const Json& merge : merges->as_array()) {
    if (merge.is_string()) {
      texts.push_back(merge.as_string());
    } else if (merge.is_array() && merge.as_array().size() == 2 &&
               merge.as_array()[0].is_string() && merge.as_array()[1].is_string()) {
      texts.push_back(merge.as_array()[0].as_string() + " " + merge.as_array()[1].as_string());
    } else {
      return {ErrorCode::kCorrupt, "field 'model.merges' must hold pairs of texts"};
    }
  }
  return texts;
}

Status AddVocabulary(const Json& json, const Tokenizer& tokenizer, int64_t rows, GgufPairs* pairs) {
  std::vector<std::string> tokens;
  std::vector<int32_t> kinds;
  for (Token id = 0; id < rows; ++id) {
    std::string text = tokenizer.TokenText(id);
    GgufTokenKind kind = tokenizer.IsSpecial(id) ? GgufTokenKind::kControl : GgufTokenKind::kNormal;
    if (text.empty()) {
      text = "[PAD" + std::to_string(id) + "]";
      kind = GgufTokenKind::kUnused;
    }
    tokens.push_back(std::move(text));
    kinds.push_back(static_cast<int32_t>(kind));
  }
  const Json* const added = json.Find("added_tokens");
  if (added != nullptr && added->is_array()) {
    for (const Json& token : added->as_array()) {
      const auto id = token.GetInt("id");
      if (!id.ok() || *id < 0 || *id >= rows) continue;
      int32_t& kind = kinds[static_cast<size_t>(*id)];
      if (kind == static_cast<int32_t>(GgufTokenKind::kNormal)) {
        kind = static_cast<int32_t>(GgufTokenKind::kUserDefined);
      }
    }
  }
  KVASIR_TRY(const std::vector<std::string> merges, MergeTexts(*json.Find("model")));
  pairs->AddTexts("tokenizer.ggml.tokens", tokens);
  pairs->AddI32s("tokenizer.ggml.token_type", kinds);
  pairs->AddTexts("tokenizer.ggml.merges", merges);
  return {};
}

// Empty without one.
std::string TemplateOf(const ModelSource& source) {
  if (const SourceFile* file = FindFile(source, "chat_template.jinja")) return file->contents;
  const SourceFile* const config = FindFile(source, "tokenizer_config.json");
  if (config == nullptr) return {};
  const auto json = Json::Parse(config->contents);
  const Json* const found = json.ok() ? json->Find("chat_template") : nullptr;
  return found != nullptr && found->is_string() ? found->as_string() : std::string();
}

Status AddTokenizer(const ModelSource& source, const ModelConfig& config, GgufPairs* pairs) {
  const SourceFile* const file = FindFile(source, "tokenizer.json");
  if (file == nullptr) return {};
  KVASIR_TRY(const Json json, Json::Parse(file->contents));
  KVASIR_TRY(const auto tokenizer, Tokenizer::FromJson(json));
  KVASIR_TRY(const std::string pre, PreTokenizerName(json));
  pairs->Add("tokenizer.ggml.model", "gpt2");
  pairs->Add("tokenizer.ggml.pre", pre);
  KVASIR_TRY_OK(AddVocabulary(json, *tokenizer, config.vocab_size, pairs));
  if (config.bos_token_id) {
    pairs->AddU32("tokenizer.ggml.bos_token_id", U32(*config.bos_token_id));
    const std::vector<Token> ids = tokenizer->Encode("a");
    pairs->AddBool("tokenizer.ggml.add_bos_token",
                   !ids.empty() && ids.front() == *config.bos_token_id);
  }
  if (!config.eos_token_ids.empty()) {
    pairs->AddU32("tokenizer.ggml.eos_token_id", U32(config.eos_token_ids.front()));
  }
  // A second one usually ends turns.
  if (config.eos_token_ids.size() > 1) {
    pairs->AddU32("tokenizer.ggml.eot_token_id", U32(config.eos_token_ids[1]));
  }
  if (config.pad_token_id) {
    pairs->AddU32("tokenizer.ggml.padding_token_id", U32(*config.pad_token_id));
  }
  if (!config.suppressed_tokens.empty()) {
    pairs->AddI32s("tokenizer.ggml.suppress_tokens",
                   {config.suppressed_tokens.begin(), config.suppressed_tokens.end()});
  }
  const std::string chat_template = TemplateOf(source);
  if (!chat_template.empty()) pairs->Add("tokenizer.chat_template", chat_template);
  return {};
}

}  // namespace

Result<GgufPairs> GgufPairsOf(const ModelSource& source, const ModelConfig& config) {
  GgufPairs pairs;
  const Status shape = AddGgufShape(config, &pairs);
  if (!shape.ok()) return WithContext(shape.error(), source.path() + "/config.json");
  const Status tokenizer = AddTokenizer(source, config, &pairs);
  if (!tokenizer.ok()) return WithContext(tokenizer.error(), source.path() + "/tokenizer.json");
  return pairs;
}

}  // namespace kvasir
