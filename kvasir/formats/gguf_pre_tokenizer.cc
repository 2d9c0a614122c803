#include "kvasir/formats/gguf_pre_tokenizer.h"

#include <algorithm>
#include <variant>

namespace kvasir {
namespace {

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 = R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
                                    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N})"
    R"(| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N})"
    R"(| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kEastAsian = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+";

// Names as llama.cpp's converter writes them.
struct Named {
  std::vector<std::string_view> names;
  GgufPreTokenizer pre;
};

const std::vector<Named>& All() {
  static const std::vector<Named> all = {
      {{"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "lfm2", "midm-2.0"},
       {{kLlama3}, true, true, false}},
      {{"smaug-bpe", "dbrx"}, {{kLlama3}, false, false, false}},  // SmolLM3 as well
      {{"qwen2", "megrez"}, {{kQwen2}, false, false, true}},
      {{"deepseek-r1-qwen", "kormo"}, {{kQwen2}, false, false, false}},
      {{"qwen35"}, {{kQwen35}, false, false, true}},
      {{"tekken"}, {{kTekken}, true, true, false}},
      {{"gpt-4o"}, {{kGpt4o}, false, false, false}},
      {{"gpt-2", "phi-2", "olmo", "exaone4", "mellum", "a.x-4.0"}, {{kGpt2}, false, false, false}},
      {{"starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b"},
       {{R"(\p{N})", kGpt2}, false, false, false}},
      {{"seed-coder"}, {{kSeedCoder}, false, false, false}},
      {{"deepseek-coder"},
       {{"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kEastAsian, R"(\p{N})"}, false, false, false}},
      {{"", "default"},
       {{R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}, false, false, false}},
  };
  return all;
}

}  // namespace

Result<std::string> GgufPreTokenizerName(const GgufMetadata& metadata) {
  KVASIR_TRY(const std::string name, metadata.TextOr("tokenizer.ggml.pre", ""));
  if (!name.empty() && name != "default") return name;
  const GgufValue* const value = metadata.Find("general.architecture");
  const auto* const architecture =
      value == nullptr ? nullptr : std::get_if<std::string_view>(value);
  // As Ollama writes them.
  if (architecture != nullptr && *architecture == "mistral3") return std::string("tekken");
  return name;
}

const GgufPreTokenizer* FindGgufPreTokenizer(std::string_view name) {
  for (const Named& named : All()) {
    if (std::find(named.names.begin(), named.names.end(), name) != named.names.end()) {
      return &named.pre;
    }
  }
  return nullptr;
}

}  // namespace kvasir
