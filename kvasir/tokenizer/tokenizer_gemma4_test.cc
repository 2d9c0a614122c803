// The shape of Gemma 4's tokenizer: blanks and newlines, bytes, markers of turns, tools and
// thoughts, and the BOS that its file leaves to the chat template.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kvasir/base/check.h"
#include "kvasir/tokenizer/streaming_detokenizer.h"
#include "kvasir/tokenizer/test_tokenizers.h"
#include "kvasir/tokenizer/tokenizer.h"

namespace kvasir {
namespace {

using Tokens = std::vector<Token>;

std::unique_ptr<const Tokenizer> Make(const TokenizerOptions& options = {}) {
  auto made = Tokenizer::FromJson(Gemma4TokenizerJson(), options);
  KVASIR_CHECK(made.ok());
  return std::move(*made);
}

Token Byte(unsigned char byte) { return 238 + byte; }

TEST(Gemma4Tokenizer, BlanksAreMergedAndNoneIsAddedInFront) {
  const auto tokenizer = Make();
  EXPECT_EQ(tokenizer->Encode("hi hi"), (Tokens{505, 504}));
  EXPECT_EQ(tokenizer->Encode(" hi"), (Tokens{504}));
  EXPECT_EQ(tokenizer->Encode("hi  hi"), (Tokens{505, 501, 505}));
  EXPECT_EQ(tokenizer->Encode(""), Tokens());
  for (const char* text : {"hi hi", "  hi   ", "hi\n\n hi"}) {
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text)), text);
  }
}

TEST(Gemma4Tokenizer, RunsOfNewlinesAreTokensLongestFirst) {
  const auto tokenizer = Make();
  EXPECT_EQ(tokenizer->Encode("hi\n\n\nhi"), (Tokens{505, 109, 505}));
  EXPECT_EQ(tokenizer->Encode("\n\n\n\n\n"), (Tokens{109, 108}));
  // A user's as well: they are no markers.
  EXPECT_EQ(tokenizer->EncodeSegments({{"hi\n\n", false}}), (Tokens{505, 108}));
}

TEST(Gemma4Tokenizer, UnknownCharactersAreBytes) {
  const auto tokenizer = Make();
  const Tokens tokens = tokenizer->Encode("\u00e9");
  EXPECT_EQ(tokens, (Tokens{Byte(0xC3), Byte(0xA9)}));
  EXPECT_EQ(tokenizer->Decode(tokens), "\u00e9");
  StreamingDetokenizer stream(*tokenizer, {});
  EXPECT_EQ(stream.Push(tokens[0]), "");
  EXPECT_EQ(stream.Push(tokens[1]), "\u00e9");
}

// A prompt with a tool's call and result, as the template writes it around what others wrote.
TEST(Gemma4Tokenizer, MarkersComeFromTheTemplateAlone) {
  const auto tokenizer = Make();
  const Tokens tokens = tokenizer->EncodeSegments({{"<bos><|turn>", true},
                                                   {"hi<turn|><|\"|><|channel>", false},
                                                   {"<turn|>\n<|tool_call>hi{<|\"|>", true},
                                                   {"<tool_call|>", false},
                                                   {"<|\"|>}<tool_call|><|tool_response>", true}},
                                                  {.add_special = false});
  Tokens markers;
  for (const Token token : tokens) {
    if (tokenizer->IsSpecial(token)) markers.push_back(token);
  }
  EXPECT_EQ(markers, (Tokens{2, 105, 106, 48, 52, 52, 49, 50}));
  EXPECT_EQ(tokenizer->Decode(tokens, {.skip_special = false}),
            "<bos><|turn>hi<turn|><|\"|><|channel><turn|>\n<|tool_call>hi{<|\"|><tool_call|>"
            "<|\"|>}<tool_call|><|tool_response>");
}

TEST(Gemma4Tokenizer, TextsBeginWithTheTokenThatIsAskedFor) {
  const auto tokenizer = Make({.begin_token = "<bos>"});
  EXPECT_EQ(tokenizer->Encode("hi"), (Tokens{2, 505}));
  EXPECT_EQ(tokenizer->Encode(""), (Tokens{2}));
  EXPECT_EQ(tokenizer->Encode("hi", {.add_special = false}), (Tokens{505}));
  // Those that write it themselves, as they have to elsewhere, do not get two.
  EXPECT_EQ(tokenizer->Encode("<bos>hi"), (Tokens{2, 505}));
  const Tokens as_text = tokenizer->Encode("<bos>hi", {.parse_special = false});
  EXPECT_EQ(as_text[0], 2);
  EXPECT_EQ(as_text[1], Byte('<'));
  // A file that adds tokens itself, or has none of that name, is left alone.
  const auto other = Tokenizer::FromJson(SentencePieceTokenizerJson(), {.begin_token = "</s>"});
  ASSERT_TRUE(other.ok());
  EXPECT_EQ((*other)->Encode("hi"), (Tokens{1, 263}));
  EXPECT_EQ(Make({.begin_token = "<nobody>"})->Encode("hi"), (Tokens{505}));
}

}  // namespace
}  // namespace kvasir
