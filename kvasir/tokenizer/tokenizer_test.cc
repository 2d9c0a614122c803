#include "kvasir/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "kvasir/tokenizer/test_tokenizers.h"

namespace kvasir {
namespace {

using Tokens = std::vector<Token>;

std::unique_ptr<const Tokenizer> Make(const Json& json) {
  auto made = Tokenizer::FromJson(json);
  EXPECT_TRUE(made.ok()) << (made.ok() ? "" : made.error().message);
  return made.ok() ? std::move(*made) : nullptr;
}

Json Parsed(std::string_view text) {
  Result<Json> json = Json::Parse(text);
  EXPECT_TRUE(json.ok()) << text;
  return json.ok() ? std::move(*json) : Json();
}

TEST(TokenizerTest, ByteLevelEncodesAndDecodes) {
  const auto tokenizer = Make(ByteLevelTokenizerJson());
  EXPECT_EQ(tokenizer->Encode("hello"), (Tokens{257, 256, 'o'}));
  EXPECT_EQ(tokenizer->Encode(""), Tokens());
  // NFC composes e and U+0301 to é.
  EXPECT_EQ(tokenizer->Encode("e\xCC\x81"), (Tokens{0xC3, 0xA9}));
  EXPECT_EQ(tokenizer->Decode(Tokens{257, 256, 'o', 0xC3, 0xA9}), "hello\xC3\xA9");
  EXPECT_EQ(tokenizer->Decode(Tokens{0xC3, 'x', 9999, -1}), "\xEF\xBF\xBDx");
  EXPECT_EQ(tokenizer->vocab_size(), 261);
}

TEST(TokenizerTest, SentencePieceFallsBackToBytes) {
  const auto tokenizer = Make(SentencePieceTokenizerJson());
  EXPECT_EQ(tokenizer->Encode("hi"), (Tokens{1, 263}));
  EXPECT_EQ(tokenizer->Encode("hi", {.add_special = false}), (Tokens{263}));
  EXPECT_EQ(tokenizer->Encode("\xC3\xA9", {.add_special = false}),
            (Tokens{259, 3 + 0xC3, 3 + 0xA9}));
  // Prepend runs on every piece between added tokens; </s> swallows the blanks after it.
  EXPECT_EQ(tokenizer->Encode("hi</s>  hi", {.add_special = false}), (Tokens{263, 2, 263}));
  EXPECT_EQ(tokenizer->Decode(Tokens{1, 263, 263}), "hi hi");
  EXPECT_EQ(tokenizer->Decode(Tokens{1, 263}, {.skip_special = false}), "<s> hi");
  EXPECT_EQ(tokenizer->Decode(Tokens{263, 3 + 0xC3}), "hi\xEF\xBF\xBD");
}

TEST(TokenizerTest, SpecialTokensCanStayText) {
  const auto tokenizer = Make(ByteLevelTokenizerJson());
  EXPECT_EQ(tokenizer->Encode("a<|end|><think>"), (Tokens{'a', 258, 259}));
  const Tokens as_text = tokenizer->Encode("a<|end|><think>", {.parse_special = false});
  EXPECT_EQ(as_text.back(), 259);
  EXPECT_EQ(std::count(as_text.begin(), as_text.end(), 258), 0);
  EXPECT_EQ(tokenizer->Decode(as_text), "a<|end|><think>");
}

TEST(TokenizerTest, DecodeSkipsSpecialTokensOnRequest) {
  const auto tokenizer = Make(ByteLevelTokenizerJson());
  EXPECT_EQ(tokenizer->Decode(Tokens{'a', 258, 259}), "a<think>");
  EXPECT_EQ(tokenizer->Decode(Tokens{'a', 258, 259}, {.skip_special = false}), "a<|end|><think>");
}

TEST(TokenizerTest, MarkersInUntrustedTextStayText) {
  const auto tokenizer = Make(ByteLevelTokenizerJson());
  const TextSegments segments = {{"<|end|>", true}, {"<|end|><think>", false}, {"<think>", true}};
  const Tokens ids = tokenizer->EncodeSegments(segments);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 258), 1);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 259), 1);
  EXPECT_EQ(ids.front(), 258);
  EXPECT_EQ(ids.back(), 259);
  EXPECT_EQ(tokenizer->Decode(ids, {.skip_special = false}), "<|end|><|end|><think><think>");
}

TEST(TokenizerTest, MarkersAcrossABorderOfTrustStayText) {
  const auto tokenizer = Make(ByteLevelTokenizerJson());
  for (const bool first_trusted : {true, false}) {
    const Tokens ids =
        tokenizer->EncodeSegments({{"<|en", first_trusted}, {"d|>", !first_trusted}});
    EXPECT_EQ(std::count(ids.begin(), ids.end(), 258), 0);
  }
  // Neighbouring trusted segments are one.
  EXPECT_EQ(tokenizer->EncodeSegments({{"<|en", true}, {"", false}, {"d|>", true}}), Tokens{258});
}

TEST(TokenizerTest, OrdinaryAddedTokensAndMergesCrossSegments) {
  const auto tokenizer = Make(ByteLevelTokenizerJson());
  // Four blanks are an added token without markup: found in any text, and across borders.
  EXPECT_EQ(tokenizer->EncodeSegments({{"a  ", true}, {"  b", false}}), (Tokens{'a', 260, 'b'}));
  EXPECT_EQ(tokenizer->EncodeSegments({{"h", true}, {"el", false}, {"lo", true}}),
            (Tokens{257, 256, 'o'}));
}

TEST(TokenizerTest, TrustSurvivesNormalization) {
  Json json = ByteLevelTokenizerJson();
  Json::Array& added = json.Set("added_tokens", *json.Find("added_tokens")).as_array();
  added[0].Set("normalized", true);
  json.Set("normalizer", Parsed(R"({"type": "Sequence", "normalizers": [
      {"type": "Lowercase"}, {"type": "NFKC"}, {"type": "Strip"},
      {"type": "Replace", "pattern": {"Regex": "e\u0301+"}, "content": "e"}]})"));
  const auto tokenizer = Make(json);
  // The ligature makes the normalized text longer than the original before the markers.
  const TextSegments segments = {{" \xEF\xAC\x81<|END|>", false}, {"<|END|>", true}};
  const Tokens ids = tokenizer->EncodeSegments(segments);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), 258), 1);
  EXPECT_EQ(ids.back(), 258);
}

TEST(TokenizerTest, InvalidTextIsReadAsReplacementCharacters) {
  const auto tokenizer = Make(ByteLevelTokenizerJson());
  EXPECT_EQ(tokenizer->Encode("\xFF"), tokenizer->Encode("\xEF\xBF\xBD"));
  EXPECT_EQ(tokenizer->Encode("h\xE2\x82"), tokenizer->Encode("h\xEF\xBF\xBD"));
}

TEST(TokenizerTest, LooksTokensUp) {
  const auto tokenizer = Make(ByteLevelTokenizerJson());
  EXPECT_EQ(tokenizer->TokenToId("<|end|>"), 258);
  EXPECT_EQ(tokenizer->TokenToId("ll"), 256);
  EXPECT_FALSE(tokenizer->TokenToId("nothing").has_value());
  EXPECT_EQ(tokenizer->TokenText(' '), "\xC4\xA0");
  EXPECT_EQ(tokenizer->TokenBytes(' '), " ");
  EXPECT_EQ(tokenizer->TokenBytes(0xC3), "\xC3");
  EXPECT_EQ(tokenizer->TokenBytes(258), "");
  EXPECT_EQ(tokenizer->TokenText(258), "<|end|>");
  EXPECT_EQ(tokenizer->TokenBytes(259), "<think>");
  EXPECT_EQ(tokenizer->TokenText(-5), "");
  EXPECT_TRUE(tokenizer->IsSpecial(258));
  EXPECT_FALSE(tokenizer->IsSpecial(259));
  EXPECT_FALSE(tokenizer->IsSpecial(1'000'000));
  EXPECT_TRUE(tokenizer->IsAdded(258));
  EXPECT_TRUE(tokenizer->IsAdded(259));
  EXPECT_FALSE(tokenizer->IsAdded(100));
  EXPECT_FALSE(tokenizer->IsAdded(1'000'000));
}

TEST(TokenizerTest, LongTextsAreNotQuadratic) {
  // A quadratic merge of 2 MB of one word takes minutes; this passes in well under a second. No
  // time is measured: the limit of the test run is the judge.
  const std::string text(2'000'000, 'l');
  EXPECT_EQ(Make(ByteLevelTokenizerJson())->Encode(text).size(), text.size() / 2);
  const std::string blanks(2'000'000, ' ');
  EXPECT_EQ(Make(SentencePieceTokenizerJson())->Encode(blanks).size(), blanks.size() + 2);
  // Marks in falling combining class: sorting them must not be quadratic either.
  std::string marks;
  for (int i = 0; i < 300'000; ++i) marks += "\xCC\x81\xCC\x96";
  EXPECT_FALSE(Make(ByteLevelTokenizerJson())->Encode(marks).empty());
}

TEST(TokenizerTest, EncodesFromManyThreads) {
  const auto tokenizer = Make(ByteLevelTokenizerJson());
  const Tokens expected = tokenizer->Encode("hello world, hello <|end|>");
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 200; ++round) {
        EXPECT_EQ(tokenizer->Encode("hello world, hello <|end|>"), expected);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(TokenizerTest, UnknownCharactersFuseOrNot) {
  Json json = SentencePieceTokenizerJson();
  Json& model = json.Set("model", *json.Find("model"));
  model.Set("byte_fallback", false);
  EXPECT_EQ(Make(json)->Encode("xyz"), (Tokens{1, 259, 0}));
  model.Set("fuse_unk", false);
  EXPECT_EQ(Make(json)->Encode("xyz"), (Tokens{1, 259, 0, 0, 0}));
  model.Set("unk_token", nullptr);
  EXPECT_EQ(Make(json)->Encode("xyz"), (Tokens{1, 259}));
}

TEST(TokenizerTest, IgnoreMergesTakesWholeWords) {
  Json json = ByteLevelTokenizerJson();
  Json& model = json.Set("model", *json.Find("model"));
  model.Set("vocab", *model.Find("vocab")).Set("hello", 300);
  EXPECT_EQ(Make(json)->Encode("hello"), (Tokens{257, 256, 'o'}));
  model.Set("ignore_merges", true);
  EXPECT_EQ(Make(json)->Encode("hello"), (Tokens{300}));
}

// Every value of every field replaced by values of other types: an error or a working tokenizer,
// never a crash, and where it is an error it says something about the place.
void ForEachValue(Json* json, const std::function<void()>& visit, const std::string& path,
                  std::string* current) {
  const std::vector<Json> strangers = {
      nullptr, true, -1, int64_t{1} << 62, 0.5, "x", "", Json(Json::Array()), Json(Json::Object())};
  for (const Json& stranger : strangers) {
    Json kept = std::exchange(*json, stranger);
    *current = path;
    visit();
    *json = std::move(kept);
  }
  size_t visited = 0;
  constexpr size_t kVisitedEntries = 12;  // the vocabulary's entries are all alike
  if (json->is_array()) {
    for (Json& element : json->as_array()) ForEachValue(&element, visit, path + "[]", current);
  } else if (json->is_object()) {
    for (auto& [key, value] : json->as_object()) {
      if (++visited > kVisitedEntries) break;
      ForEachValue(&value, visit, path + "." + key, current);
    }
  }
}

TEST(TokenizerTest, WrongTypesAreErrorsOrHarmless) {
  for (Json json : {ByteLevelTokenizerJson(), SentencePieceTokenizerJson()}) {
    int errors = 0;
    std::string path;
    ForEachValue(
        &json,
        [&] {
          const auto tokenizer = Tokenizer::FromJson(json);
          if (!tokenizer.ok()) {
            ++errors;
            EXPECT_FALSE(tokenizer.error().message.empty()) << path;
            return;
          }
          const Tokens ids = (*tokenizer)->Encode("he llo <|end|> \xC3\xA9</s>  x");
          (*tokenizer)->Decode(ids);
        },
        "", &path);
    EXPECT_GT(errors, 100);
  }
}

std::string ErrorOf(const std::function<void(Json*)>& change) {
  Json json = SentencePieceTokenizerJson();
  change(&json);
  const auto tokenizer = Tokenizer::FromJson(json);
  return tokenizer.ok() ? "no error" : tokenizer.error().message;
}

// As in the reference: white space swallowed by one token is still searched, and a token that
// strips to the left has nothing left of itself where the token before has swallowed it.
TEST(TokenizerTest, AddedTokensSwallowBlanks) {
  Json json = ByteLevelTokenizerJson();
  json.Set("added_tokens", Parsed(R"([
      {"id": 258, "content": "<a>", "rstrip": true, "normalized": false},
      {"id": 259, "content": " b", "normalized": false},
      {"id": 260, "content": "\n", "lstrip": true, "normalized": false},
      {"id": 261, "content": "word", "single_word": true, "normalized": false}])"));
  const auto tokenizer = Make(json);
  EXPECT_EQ(tokenizer->Encode("<a> bc"), (Tokens{258, 259, 'c'}));
  EXPECT_EQ(tokenizer->Encode("c  \n"), (Tokens{'c', 260}));
  EXPECT_EQ(tokenizer->Encode("<a> \n"), (Tokens{258}));
  EXPECT_EQ(tokenizer->Encode("word-"), (Tokens{261, '-'}));
  EXPECT_EQ(tokenizer->Encode("words").front(), 'w');
  EXPECT_EQ(tokenizer->Encode("\xC3\xA9word").back(), 'd');
}

TEST(TokenizerTest, ErrorsNameTheThing) {
  const auto set = [](std::string_view component, std::string_view value) {
    return [component, value](Json* json) { json->Set(component, Parsed(value)); };
  };
  const auto set_model = [](std::string_view key, std::string_view value) {
    return [key, value](Json* json) {
      json->Set("model", *json->Find("model")).Set(key, Parsed(value));
    };
  };
  EXPECT_EQ(ErrorOf(set("added_tokens", R"([{"id": 2147483648, "content": "x"}])")),
            "added_tokens[0]: field 'id' is 2147483648, outside 0 to 1049636");
  EXPECT_EQ(ErrorOf(set("added_tokens", R"([{"id": "1", "content": "x"}])")),
            "added_tokens[0]: field 'id' must be an integer, not string");
  EXPECT_EQ(ErrorOf(set("normalizer", R"({"type": "Sequence", "normalizers": [{"type": "Foo"}]})"))
                .substr(0, 56),
            "normalizer: normalizers[0]: type 'Foo' is not supported;");
  EXPECT_EQ(ErrorOf(set("pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "("},
                                             "behavior": "Isolated"})")),
            "pre_tokenizer: regex '(' does not compile: missing closing parenthesis");
  EXPECT_EQ(ErrorOf(set("decoder", R"({"type": "Strip", "content": " ", "start": "1"})")),
            "decoder: field 'start' must be an integer, not string");
  EXPECT_EQ(ErrorOf(set_model("merges", R"(["▁ nope"])")),
            "model: merges[0]: 'nope' is not in the vocab");
  EXPECT_EQ(ErrorOf(set_model("merges", R"(["h"])")),
            "model: merges[0]: must be two tokens with one space between them");
  EXPECT_EQ(ErrorOf(set_model("vocab", R"({"h": "0"})")),
            "model: vocab entry 'h' must be an integer id, not string");
  EXPECT_EQ(ErrorOf(set_model("vocab", R"({"h": 4294967296})")),
            "model: vocab entry 'h' has the id 4294967296, outside 0 to 1048580");
  EXPECT_EQ(ErrorOf(set_model("type", R"("Unigram")")),
            "model: type 'Unigram' is not supported; supported are BPE");
  EXPECT_EQ(ErrorOf(set("post_processor", R"({"type": "RobertaProcessing", "cls": ["a", 999999],
                                              "sep": ["b", 0]})")),
            "post_processor: field 'cls': id 999999 is outside the vocabulary of 264");
  EXPECT_EQ(ErrorOf(set("version", R"("2.0")")), "field 'version' is '2.0'; supported is 1.0");
}

TEST(TokenizerTest, ReadsAnEmptyModel) {
  const auto tokenizer = Make(Parsed(R"({"model": {"type": "BPE", "vocab": {}, "merges": []}})"));
  EXPECT_EQ(tokenizer->Encode("anything"), Tokens());
  EXPECT_EQ(tokenizer->vocab_size(), 0);
  EXPECT_EQ(tokenizer->Decode(Tokens{0, 1}), "");
}

TEST(TokenizerTest, MissingFileIsAnErrorWithItsPath) {
  const auto tokenizer = Tokenizer::FromFile("no/such/tokenizer.json");
  ASSERT_FALSE(tokenizer.ok());
  EXPECT_EQ(tokenizer.error().code, ErrorCode::kNotFound);
  EXPECT_NE(tokenizer.error().message.find("no/such/tokenizer.json"), std::string::npos);
}

// Components that double the text at each of 60 steps would need an exabyte.
TEST(TokenizerTest, GrowingComponentsStopGrowing) {
  Json normalizers, byte_levels, decoders;
  for (int i = 0; i < 60; ++i) {
    normalizers.Append(
        Parsed(R"({"type": "Replace", "pattern": {"Regex": "h"}, "content": "hh"})"));
    byte_levels.Append(Parsed(R"({"type": "ByteLevel", "use_regex": false})"));
    decoders.Append(Parsed(R"({"type": "Replace", "pattern": {"String": "h"}, "content": "hh"})"));
  }
  Json json = SentencePieceTokenizerJson();
  json.Set("normalizer", Parsed(R"({"type": "Sequence"})")).Set("normalizers", normalizers);
  json.Set("pre_tokenizer", Parsed(R"({"type": "Sequence"})")).Set("pretokenizers", byte_levels);
  json.Set("decoder", Parsed(R"({"type": "Sequence"})")).Set("decoders", decoders);
  const auto tokenizer = Make(json);
  EXPECT_LT(tokenizer->Encode("hhh").size(), 100'000u);
  EXPECT_LT(tokenizer->Decode(Tokens{260, 260}).size(), 100'000u);
}

}  // namespace
}  // namespace kvasir
