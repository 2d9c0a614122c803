#include "kvasir/tokenizer/streaming_detokenizer.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/base/rng.h"
#include "kvasir/tokenizer/test_tokenizers.h"
#include "kvasir/tokenizer/utf8.h"

namespace kvasir {
namespace {

using Tokens = std::vector<Token>;
using Strings = std::vector<std::string>;

std::unique_ptr<const Tokenizer> Make(const Json& json) {
  auto made = Tokenizer::FromJson(json);
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  return made.ok() ? std::move(*made) : nullptr;
}

Json WithDecoder(Json json, std::string_view decoder) {
  Result<Json> parsed = Json::Parse(decoder);
  EXPECT_TRUE(parsed.ok());
  json.Set("decoder", std::move(*parsed));
  return json;
}

// What each token returned, and last what Finish returned.
Strings Steps(const Tokenizer& tokenizer, const Tokens& ids, StreamOptions options = {}) {
  StreamingDetokenizer stream(tokenizer, options);
  Strings steps;
  for (const Token id : ids) steps.push_back(stream.Push(id));
  steps.push_back(stream.Finish());
  return steps;
}

TEST(StreamingDetokenizerTest, HoldsHalfCharactersBack) {
  const auto tokenizer = Make(ByteLevelTokenizerJson());
  EXPECT_EQ(Steps(*tokenizer, {'a', 0xF0, 0x9F, 0x99, 0x82, 'b'}),
            (Strings{"a", "", "", "", "\xF0\x9F\x99\x82", "b", ""}));
  EXPECT_EQ(Steps(*tokenizer, {0xF0, 0x9F}), (Strings{"", "", "\xEF\xBF\xBD"}));
  EXPECT_EQ(Steps(*tokenizer, {0xF0, 'x'}), (Strings{"", "\xEF\xBF\xBDx", ""}));
}

TEST(StreamingDetokenizerTest, ByteTokensMakeCharacters) {
  const auto tokenizer = Make(SentencePieceTokenizerJson());
  EXPECT_EQ(Steps(*tokenizer, {263, 3 + 0xC3, 3 + 0xA9, 260}),
            (Strings{"hi", "", "\xC3\xA9", "h", ""}));
  // Once a run of bytes is broken, each of its bytes is one U+FFFD, as in Decode.
  const std::string r(kReplacementCharacter);
  EXPECT_EQ(Steps(*tokenizer, {3 + 0xA9, 3 + 'a', 260}), (Strings{r, r, "h", ""}));
  EXPECT_EQ(Steps(*tokenizer, {3 + 0xC3, 260}), (Strings{"", r + "h", ""}));
  EXPECT_EQ(Steps(*tokenizer, {3 + 0xC3}), (Strings{"", r}));
}

TEST(StreamingDetokenizerTest, StripsTheLeadingBlankOfATextOnly) {
  const auto tokenizer = Make(SentencePieceTokenizerJson());
  EXPECT_EQ(Steps(*tokenizer, {1, 263, 263}), (Strings{"", "hi", " hi", ""}));
  EXPECT_EQ(Steps(*tokenizer, {263}, {.continues_text = true}), (Strings{" hi", ""}));
  EXPECT_EQ(Steps(*tokenizer, {1, 263}, {.decode = {.skip_special = false}}),
            (Strings{"<s>", " hi", ""}));
}

TEST(StreamingDetokenizerTest, FinishBeginsANewText) {
  const auto tokenizer = Make(SentencePieceTokenizerJson());
  StreamingDetokenizer stream(*tokenizer);
  EXPECT_EQ(stream.Push(263), "hi");
  EXPECT_EQ(stream.Finish(), "");
  EXPECT_EQ(stream.Push(263), "hi");
}

TEST(StreamingDetokenizerTest, SkipsUnknownIds) {
  const auto tokenizer = Make(SentencePieceTokenizerJson());
  EXPECT_EQ(Steps(*tokenizer, {-1, 100'000, 263}), (Strings{"", "", "hi", ""}));
}

// Random ids against Decode, for every shape of decoder. Bytes are drawn so that runs are often
// cut in the middle of a character.
TEST(StreamingDetokenizerTest, EqualsDecodeForRandomTokens) {
  const Json byte_level = ByteLevelTokenizerJson();
  const Json pieces = SentencePieceTokenizerJson();
  const std::vector<Json> tokenizers = {
      byte_level,
      WithDecoder(byte_level, "null"),
      WithDecoder(byte_level, R"({"type": "BPEDecoder", "suffix": "l"})"),
      WithDecoder(pieces,
                  R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first"})"),
      WithDecoder(pieces,
                  R"({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"})"),
      WithDecoder(pieces, R"({"type": "Sequence", "decoders": [
          {"type": "Fuse"}, {"type": "Replace", "pattern": {"Regex": "▁+"}, "content": " "}]})"),
      WithDecoder(pieces, R"({"type": "Sequence", "decoders": [
          {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "Fuse"},
          {"type": "Strip", "content": " ", "start": 3, "stop": 0}]})"),
  };
  for (const Json& json : tokenizers) {
    const auto tokenizer = Make(json);
    for (uint64_t round = 0; round < 300; ++round) {
      Tokens ids;
      for (uint64_t i = 0; i < round % 20; ++i) {
        ids.push_back(static_cast<Token>(Philox4x32(round, i)[0] %
                                         static_cast<uint64_t>(tokenizer->vocab_size() + 2)));
      }
      for (const bool skip_special : {false, true}) {
        std::string streamed;
        for (const std::string& step : Steps(*tokenizer, ids, {{.skip_special = skip_special}})) {
          EXPECT_TRUE(IsValidUtf8(step));
          streamed += step;
        }
        EXPECT_EQ(streamed, tokenizer->Decode(ids, {.skip_special = skip_special}))
            << "round " << round;
      }
    }
  }
}

}  // namespace
}  // namespace kvasir
