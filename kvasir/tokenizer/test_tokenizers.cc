#include "kvasir/tokenizer/test_tokenizers.h"

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>

#include "kvasir/tokenizer/byte_alphabet.h"
#include "kvasir/tokenizer/utf8.h"

namespace kvasir {
namespace {

Json Parsed(const char* text) {
  Result<Json> json = Json::Parse(text);
  KVASIR_CHECK(json.ok());
  return std::move(*json);
}

}  // namespace

Json ByteLevelTokenizerJson() {
  Json json = Parsed(R"({
    "version": "1.0",
    "added_tokens": [
      {"id": 258, "content": "<|end|>", "single_word": false, "lstrip": false, "rstrip": false,
       "normalized": false, "special": true},
      {"id": 259, "content": "<think>", "single_word": false, "lstrip": false, "rstrip": false,
       "normalized": false, "special": false},
      {"id": 260, "content": "    ", "single_word": false, "lstrip": false, "rstrip": false,
       "normalized": true, "special": false}],
    "normalizer": {"type": "NFC"},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
    "post_processor": {"type": "ByteLevel"},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {}, "merges": ["l l", ["h", "e"]]}})");
  Json::Object vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    std::string text;
    AppendUtf8(CharacterOfByte(static_cast<uint8_t>(byte)), &text);
    vocabulary.emplace_back(text, byte);
  }
  vocabulary.emplace_back("ll", 256);
  vocabulary.emplace_back("he", 257);
  json.Set("model", *json.Find("model")).Set("vocab", Json(std::move(vocabulary)));
  return json;
}

Json SentencePieceTokenizerJson() {
  Json json = Parsed(R"({
    "version": "1.0",
    "added_tokens": [
      {"id": 0, "content": "<unk>", "normalized": false, "special": true},
      {"id": 1, "content": "<s>", "normalized": false, "special": true},
      {"id": 2, "content": "</s>", "normalized": false, "special": true, "rstrip": true}],
    "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "pre_tokenizer": null,
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A"}}],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}}},
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
      "vocab": {}, "merges": ["▁ h", "▁h i"]}})");
  Json::Object vocabulary;
  int id = 0;
  for (const char* text : {"<unk>", "<s>", "</s>"}) vocabulary.emplace_back(text, id++);
  for (unsigned byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", byte & 0xFFu);
    vocabulary.emplace_back(text, id++);
  }
  for (const char* text : {"▁", "h", "i", "▁h", "▁hi"}) vocabulary.emplace_back(text, id++);
  json.Set("model", *json.Find("model")).Set("vocab", Json(std::move(vocabulary)));
  return json;
}

Json Gemma4TokenizerJson() {
  Json json = Parsed(R"({
    "version": "1.0",
    "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
    "pre_tokenizer": {"type": "Split", "pattern": {"String": " "},
      "behavior": "MergedWithPrevious", "invert": false},
    "post_processor": null,
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
      {"type": "Fuse"}]},
    "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
      "vocab": {"▁": 500, "▁▁": 501, "h": 502, "i": 503, "▁hi": 504, "hi": 505},
      "merges": [["▁", "▁"], ["h", "i"], ["▁", "hi"]]}})");
  constexpr std::pair<const char*, int> kSpecial[] = {{"<pad>", 0},
                                                      {"<eos>", 1},
                                                      {"<bos>", 2},
                                                      {"<unk>", 3},
                                                      {"<|tool>", 46},
                                                      {"<tool|>", 47},
                                                      {"<|tool_call>", 48},
                                                      {"<tool_call|>", 49},
                                                      {"<|tool_response>", 50},
                                                      {"<tool_response|>", 51},
                                                      {"<|\"|>", 52},
                                                      {"<|turn>", 105},
                                                      {"<turn|>", 106},
                                                      {"<|channel>", 110},
                                                      {"<channel|>", 111},
                                                      {"<|think|>", 112}};
  Json added = Json::Array();
  Json vocabulary = *json.Find("model")->Find("vocab");
  const auto add = [&](const std::string& content, int id, bool special) {
    vocabulary.Set(content, id);
    added.Append(Json::Object{
        {"id", id}, {"content", content}, {"normalized", false}, {"special", special}});
  };
  for (const auto& [content, id] : kSpecial) add(content, id, true);
  for (int newlines = 1; newlines <= 3; ++newlines) {
    add(std::string(static_cast<size_t>(newlines), '\n'), 106 + newlines, false);
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", byte & 0xFFu);
    vocabulary.Set(text, 238 + static_cast<int>(byte));
  }
  json.Set("added_tokens", std::move(added));
  Json model = *json.Find("model");
  model.Set("vocab", std::move(vocabulary));
  json.Set("model", std::move(model));
  return json;
}

}  // namespace kvasir
