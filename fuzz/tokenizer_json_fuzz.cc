// Fuzzes tokenizer.json: any file must give an error or a tokenizer whose every method works.
// Deliberately not a check of the ids: the golden tests compare those.
//
// Input: JSON, then a zero byte and a text to encode; without a zero byte the text is the JSON.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvasir/tokenizer/streaming_detokenizer.h"
#include "kvasir/tokenizer/tokenizer.h"
#include "kvasir/tokenizer/utf8.h"

namespace {

using kvasir::Json;
using kvasir::Token;
using kvasir::Tokenizer;

void Exercise(const Tokenizer& tokenizer, std::string_view text) {
  const size_t half = text.size() / 2;
  const std::vector<Token> ids = tokenizer.EncodeSegments(
      {{std::string(text.substr(0, half)), true}, {std::string(text.substr(half)), false}});
  for (const Token id : ids) {
    KVASIR_CHECK(id >= 0 && id < tokenizer.vocab_size());
    tokenizer.TokenBytes(id);
  }
  tokenizer.Encode(text, {.add_special = false, .parse_special = false});

  std::vector<Token> all = ids;
  for (size_t i = 0; i < text.size() && i < 64; ++i) all.push_back(static_cast<int8_t>(text[i]));
  KVASIR_CHECK(kvasir::IsValidUtf8(tokenizer.Decode(all)));
  kvasir::StreamingDetokenizer stream(tokenizer, {.decode = {.skip_special = false}});
  for (const Token id : all) KVASIR_CHECK(kvasir::IsValidUtf8(stream.Push(id)));
  KVASIR_CHECK(kvasir::IsValidUtf8(stream.Finish()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const std::string_view text = zero == std::string_view::npos ? input : input.substr(zero + 1);
  const kvasir::Result<Json> json = Json::Parse(input.substr(0, zero));
  if (!json.ok()) return 0;
  const auto tokenizer = Tokenizer::FromJson(*json);
  if (!tokenizer.ok()) {
    KVASIR_CHECK(!tokenizer.error().message.empty());
    return 0;
  }
  Exercise(**tokenizer, text);
  return 0;
}
