#include "kvasir/engine/model_text.h"

#include <algorithm>
#include <utility>

#include "kvasir/formats/gguf.h"
#include "kvasir/formats/gguf_pre_tokenizer.h"
#include "kvasir/formats/gguf_special_tokens.h"
#include "kvasir/formats/gguf_tokenizer.h"
#include "kvasir/formats/stop_texts.h"

namespace kvasir {
namespace {

Status LoadFolder(const std::string& folder, const ModelConfig& config, ModelText* text) {
  KVASIR_TRY(text->package, PackageFile::Load(folder));
  auto tokenizer = Tokenizer::FromFile(folder + "/tokenizer.json", TokenizerOptionsFor(config));
  if (!tokenizer.ok()) {
    return tokenizer.error().code == ErrorCode::kNotFound ? Status() : tokenizer.status();
  }
  text->tokenizer = *std::move(tokenizer);
  auto chat = ChatTemplateSet::Load(folder);
  if (!chat.ok()) {
    return chat.error().code == ErrorCode::kNotFound ? Status() : chat.status();
  }
  text->chat.emplace(*std::move(chat));
  const auto add = [&](std::string_view stop) {
    std::vector<Token>& stops = text->stop_tokens;
    const std::optional<Token> id = text->tokenizer->TokenToId(stop);
    if (id && std::find(stops.begin(), stops.end(), *id) == stops.end()) stops.push_back(*id);
  };
  const Json* const eos = text->chat->special_tokens().Find("eos_token");
  if (eos != nullptr && eos->is_string()) add(eos->as_string());
  // A call ends an answer, as somebody else goes on; some lists leave it out.
  const std::string& source = text->chat->source();
  if (source.find(kAnswerEnd) != source.npos) {
    for (const std::string_view stop : {kAnswerEnd, kCallEnd}) add(stop);
  }
  if (!config.generation.eos_token_ids.empty()) return {};
  // A config.json alone names the end of a text; its chat ends turns with another token.
  for (const std::string_view stop : StopTextsIn(text->chat->source())) {
    const std::optional<Token> id = text->tokenizer->TokenToId(stop);
    if (id && text->tokenizer->IsSpecial(*id)) add(stop);
  }
  return {};
}

Status LoadGguf(const std::string& path, const LogSink& log, ModelText* text) {
  KVASIR_TRY(const GgufFile file, GgufFile::Open(path));
  const auto json = GgufTokenizerJson(file.metadata());
  if (!json.ok()) {
    return json.error().code == ErrorCode::kNotFound ? Status() : WithContext(json.error(), path);
  }
  auto tokenizer = Tokenizer::FromJson(*json);
  if (!tokenizer.ok()) return WithContext(tokenizer.error(), path + ": as tokenizer.json");
  text->tokenizer = *std::move(tokenizer);
  // Files of before May 2024.
  const auto kind = file.metadata().TextOr("tokenizer.ggml.model", "");
  const auto pre = GgufPreTokenizerName(file.metadata());
  if (kind.ok() && *kind == "gpt2" && pre.ok() && pre->empty()) {
    Log(log, LogLevel::kWarning,
        path +
            ": names no pre-tokenizer (tokenizer.ggml.pre), so texts may be split otherwise "
            "than its model has learnt; a newer file of the model would answer better");
  }
  if (!file.metadata().Has("tokenizer.chat_template")) return {};
  const auto source = file.metadata().Text("tokenizer.chat_template");
  if (!source.ok()) return WithContext(source.error(), path);
  const auto special = GgufSpecialTokens::Read(file.metadata());
  if (!special.ok()) return WithContext(special.error(), path);
  KVASIR_TRY(const auto tokens, file.metadata().Strings("tokenizer.ggml.tokens"));
  const auto tool_use = file.metadata().TextOr(kGgufToolTemplate, "");
  if (!tool_use.ok()) return WithContext(tool_use.error(), path);
  auto chat = ChatTemplateSet::FromSource(*source, path + ":tokenizer.chat_template",
                                          special->Texts(tokens));
  if (!chat.ok()) return chat.status();
  if (!tool_use->empty()) {
    KVASIR_TRY_OK(chat->AddToolUse(*tool_use, path + ":" + std::string(kGgufToolTemplate)));
  }
  text->chat.emplace(*std::move(chat));
  return {};
}

}  // namespace

TokenizerOptions TokenizerOptionsFor(const ModelConfig& config) {
  return {.begin_token = config.family == ModelFamily::kGemma4 ? "<bos>" : ""};
}

Result<ModelText> ModelText::Load(const std::string& path, const ModelConfig& config,
                                  const LogSink& log) {
  ModelText text;
  text.stop_tokens = config.eos_token_ids;
  KVASIR_TRY_OK(IsGguf(path) ? LoadGguf(path, log, &text) : LoadFolder(path, config, &text));
  return text;
}

}  // namespace kvasir
