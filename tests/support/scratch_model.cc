#include "tests/support/scratch_model.h"

#include <string_view>
#include <utility>

#include "kvasir/base/file.h"
#include "kvasir/base/json.h"
#include "kvasir/tokenizer/byte_alphabet.h"

namespace kvasir {
namespace {

constexpr const char* kTemplate =
    "{% for message in messages %}<{{ message.role }}>{{ message.content }}\n{% endfor %}"
    "<assistant>";

Json::Object Vocabulary(int64_t size) {
  Json::Object vocabulary;
  for (int byte = 0; byte < 256; ++byte) {
    const char bytes[] = {static_cast<char>(byte)};
    std::string text;
    AppendByteCharacters(std::string_view(bytes, 1), &text);
    vocabulary.emplace_back(std::move(text), byte);
  }
  for (int64_t id = 256; id < size; ++id) {
    std::string word = std::to_string(id);
    vocabulary.emplace_back(std::move(word.insert(0, 1, 'w')), id);
  }
  return vocabulary;
}

}  // namespace

std::string BytesTokenizer(int64_t vocab_size) {
  const Json bytes =
      Json::Object{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const Json tokenizer = Json::Object{{"version", "1.0"},
                                      {"added_tokens", Json::Array()},
                                      {"normalizer", nullptr},
                                      {"pre_tokenizer", bytes},
                                      {"post_processor", nullptr},
                                      {"decoder", Json::Object{{"type", "ByteLevel"}}},
                                      {"model", Json::Object{{"type", "BPE"},
                                                             {"vocab", Vocabulary(vocab_size)},
                                                             {"merges", Json::Array()}}}};
  return tokenizer.Dump();
}

Status WriteScratchTokenizer(const std::string& folder, int64_t vocab_size) {
  KVASIR_TRY_OK(WriteFileAtomic(folder + "/tokenizer.json", BytesTokenizer(vocab_size)));
  KVASIR_TRY_OK(WriteFileAtomic(folder + "/tokenizer_config.json", "{}"));
  return WriteFileAtomic(folder + "/chat_template.jinja", kTemplate);
}

}  // namespace kvasir
