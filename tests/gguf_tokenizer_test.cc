// A tokenizer that went through GGUF metadata gives the ids of the tokenizer.json it came from.
#include "kvasir/formats/gguf_tokenizer.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "kvasir/base/file.h"
#include "kvasir/formats/gguf_header.h"
#include "kvasir/formats/gguf_special_tokens.h"
#include "kvasir/formats/gguf_test_bytes.h"
#include "kvasir/tokenizer/pre_tokenizer.h"
#include "kvasir/tokenizer/tokenizer.h"

namespace kvasir {
namespace {

constexpr const char* kTexts[] = {"",
                                  "Hello, world!",
                                  "  two  blanks\n\n\tand a tab",
                                  "it's 12345 o'clock, WE'RE late",
                                  "caf\u00e9 \u6f22\u5b57 \U0001F600",
                                  "<|im_end|> <eos> </s>",
                                  "a\u2581b",
                                  "trailing  "};

std::string MergeText(const Json& merge) {
  if (merge.is_string()) return merge.as_string();
  return merge.as_array()[0].as_string() + " " + merge.as_array()[1].as_string();
}

// What a converter writes for a tokenizer.json. `pre` empty: as SentencePiece, with scores.
std::string ToGguf(const Json& json, const std::string& pre) {
  std::map<int64_t, std::pair<std::string, int32_t>> tokens;
  const Json& model = *json.Find("model");
  for (const auto& [text, id] : model.Find("vocab")->as_object()) {
    const bool is_byte = pre.empty() && text.size() == 6 && text.starts_with("<0x");
    tokens[id.as_int()] = {text, is_byte ? 6 : 1};
  }
  for (const Json& added : json.Find("added_tokens")->as_array()) {
    const std::string text = *added.GetString("content");
    const bool is_special = *added.GetBool("special");
    tokens[*added.GetInt("id")] = {text, text == "<unk>" ? 2 : is_special ? 3 : 4};
  }
  std::vector<std::string> texts;
  std::vector<int32_t> types;
  for (const auto& [id, token] : tokens) {
    while (static_cast<int64_t>(texts.size()) < id) {
      texts.push_back("[PAD" + std::to_string(texts.size()) + "]");
      types.push_back(5);
    }
    texts.push_back(token.first);
    types.push_back(token.second);
  }
  GgufTestFile file;
  file.Text("tokenizer.ggml.model", pre.empty() ? "llama" : "gpt2");
  file.Texts("tokenizer.ggml.tokens", texts).I32s("tokenizer.ggml.token_type", types);
  file.Bool("tokenizer.ggml.add_bos_token", false);
  if (pre.empty()) {
    // Merges were made from scores, best first.
    std::map<std::string, float> ranks;
    for (const Json& merge : model.Find("merges")->as_array()) {
      std::string piece = MergeText(merge);
      piece.erase(piece.find(' '), 1);
      ranks.emplace(piece, -static_cast<float>(ranks.size()));
    }
    std::vector<float> scores;
    for (const std::string& text : texts) {
      scores.push_back(ranks.contains(text) ? ranks[text] : -1e9f);
    }
    file.F32s("tokenizer.ggml.scores", scores).U32("tokenizer.ggml.unknown_token_id", 0);
  } else {
    std::vector<std::string> merges;
    for (const Json& merge : model.Find("merges")->as_array()) merges.push_back(MergeText(merge));
    file.Text("tokenizer.ggml.pre", pre).Texts("tokenizer.ggml.merges", merges);
  }
  return file.Bytes(0);
}

std::unique_ptr<const Tokenizer> FromGguf(const std::string& bytes) {
  const auto header = GgufHeader::Parse(std::as_bytes(std::span(bytes)));
  EXPECT_TRUE(header.ok()) << header.error().message;
  const auto json = GgufTokenizerJson(header->metadata);
  EXPECT_TRUE(json.ok()) << json.error().message;
  auto tokenizer = Tokenizer::FromJson(*json);
  EXPECT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  return *std::move(tokenizer);
}

void ExpectSameIds(const Tokenizer& actual, const Tokenizer& wanted, std::string_view text) {
  const std::vector<Token> ids = wanted.Encode(text, {.add_special = false});
  EXPECT_EQ(actual.Encode(text, {.add_special = false}), ids) << text;
  EXPECT_EQ(actual.Decode(ids), wanted.Decode(ids)) << text;
}

TEST(GgufTokenizer, TheBundledModelsThroughGguf) {
  const std::string path = std::string(KVASIR_SOURCE_DIR) + "/models/kvasir-demo/tokenizer.json";
  const auto json = Json::ParseFile(path);
  ASSERT_TRUE(json.ok());
  const auto actual = FromGguf(ToGguf(*json, "qwen2"));
  const auto wanted = *Tokenizer::FromFile(path);
  EXPECT_EQ(actual->vocab_size(), wanted->vocab_size());
  for (const char* text : kTexts) ExpectSameIds(*actual, *wanted, text);
}

// Published tokenizers, where their files are at hand.
TEST(GgufTokenizer, PublishedOnesThroughGguf) {
  const std::string root = std::string(KVASIR_SHARED_DATA) + "/tokenizers/";
  if (!DirectoryExists(root + "goldens")) GTEST_SKIP() << "reference data is absent";
  const std::pair<const char*, const char*> cases[] = {
      {"qwen3", "qwen2"}, {"smollm2", "smollm"}, {"phi-3-mini", ""}};
  for (const auto& [name, pre] : cases) {
    SCOPED_TRACE(name);
    const std::string path = root + "tokenizers/" + name + "/tokenizer.json";
    const auto json = Json::ParseFile(path);
    ASSERT_TRUE(json.ok());
    const auto actual = FromGguf(ToGguf(*json, pre));
    const auto wanted = *Tokenizer::FromFile(path);
    for (const char* text : kTexts) {
      // GGUF does not say that phi-3's </s> swallows blanks after it.
      if (std::string_view(pre).empty() && std::string_view(text).ends_with("</s>")) continue;
      ExpectSameIds(*actual, *wanted, text);
    }
    const auto lines = ReadFile(root + "goldens/encode_" + name + ".jsonl");
    ASSERT_TRUE(lines.ok());
    for (size_t begin = 0; begin < lines->size();) {
      const size_t end = lines->find('\n', begin);
      const auto line = Json::Parse(std::string_view(*lines).substr(begin, end - begin));
      ASSERT_TRUE(line.ok());
      const std::string text = *line->GetString("text");
      begin = end == std::string::npos ? lines->size() : end + 1;
      if (std::string_view(pre).empty() && text.find('<') != std::string::npos) continue;
      ExpectSameIds(*actual, *wanted, text);
    }
  }
}

// What a file of such a `pre` cuts text into.
std::vector<std::string> Cut(const std::string& pre, const std::string& text) {
  const std::string path = std::string(KVASIR_SOURCE_DIR) + "/models/kvasir-demo/tokenizer.json";
  const std::string bytes = ToGguf(*Json::ParseFile(path), pre);
  const auto header = GgufHeader::Parse(std::as_bytes(std::span(bytes)));
  EXPECT_TRUE(header.ok()) << header.error().message;
  const Json tokenizer = *GgufTokenizerJson(header->metadata);
  Json::Array steps = tokenizer.Find("pre_tokenizer")->Find("pretokenizers")->as_array();
  steps.pop_back();  // spells bytes
  const auto cuts =
      *PreTokenizer::FromJson(Json::Object{{"type", "Sequence"}, {"pretokenizers", steps}});
  PieceList list(text, PieceOrigin::kTextBegin);
  cuts->Apply(&list);
  std::vector<std::string> pieces;
  for (const Piece& piece : list.pieces) pieces.emplace_back(list.View(piece));
  return pieces;
}

// As HuggingFace's library cuts it with the steps of deepseek-coder's tokenizer.json.
TEST(GgufTokenizer, CutsAsDeepSeekCoder) {
  const std::vector<std::string> wanted = {"def",
                                           " ",
                                           " f",
                                           "(",
                                           "x",
                                           "):",
                                           "\r",
                                           "\n",
                                           "   ",
                                           " return",
                                           " x",
                                           "**",
                                           "2",
                                           " + ",
                                           "1",
                                           "2",
                                           "3",
                                           "4",
                                           " ",
                                           " #",
                                           " caf\u00e9",
                                           " ",
                                           "\u4f60\u597d",
                                           "2",
                                           "\u4eba",
                                           ",",
                                           " ",
                                           "\ud55c\uad6d",
                                           "\u3002",
                                           "\n",
                                           "\n",
                                           "$",
                                           "a",
                                           "_",
                                           "b",
                                           " = ",
                                           "\u0664",
                                           "!"};
  EXPECT_EQ(Cut("deepseek-coder",
                "def  f(x):\r\n    return x**2 + 1234  # caf\u00e9 \u4f60\u597d2\u4eba, "
                "\ud55c\uad6d\u3002\n\n"
                "$a_b = \u0664!"),
            wanted);
}

// Likewise; of the older one a class of punctuation has all letters of ASCII in it.
TEST(GgufTokenizer, CutsAsDeepSeek) {
  const std::string text =
      "def  f(x):\r\n    return x**2 + 1234567  # caf\u00e9 Stra\u00dfe \u4f60\u597d2\u4eba, "
      "\u30ab\u30bf \u0410\u0431\n\n$a_b = \u0664!don't  <x>\ufb01  ";
  EXPECT_EQ(Cut("deepseek-v3", text), (std::vector<std::string>{"def",
                                                                " ",
                                                                " f",
                                                                "(x",
                                                                "):\r\n",
                                                                "   ",
                                                                " return",
                                                                " x",
                                                                "**",
                                                                "2",
                                                                " +",
                                                                " ",
                                                                "123",
                                                                "456",
                                                                "7",
                                                                " ",
                                                                " #",
                                                                " caf\u00e9",
                                                                " Stra\u00dfe",
                                                                " ",
                                                                "\u4f60\u597d",
                                                                "2",
                                                                "\u4eba",
                                                                ",",
                                                                " ",
                                                                "\u30ab\u30bf",
                                                                " \u0410\u0431",
                                                                "\n\n",
                                                                "$a",
                                                                "_b",
                                                                " =",
                                                                " ",
                                                                "\u0664",
                                                                "!don",
                                                                "'t",
                                                                " ",
                                                                " <",
                                                                "x",
                                                                ">",
                                                                "\ufb01",
                                                                "  "}));
  EXPECT_EQ(Cut("deepseek-llm", text), (std::vector<std::string>{"def",
                                                                 " ",
                                                                 " f",
                                                                 "(",
                                                                 "x",
                                                                 "):",
                                                                 "\r",
                                                                 "\n",
                                                                 "   ",
                                                                 " return",
                                                                 " x",
                                                                 "**",
                                                                 "2",
                                                                 " +",
                                                                 " ",
                                                                 "1",
                                                                 "2",
                                                                 "3",
                                                                 "4",
                                                                 "5",
                                                                 "6",
                                                                 "7",
                                                                 " ",
                                                                 " #",
                                                                 " caf",
                                                                 "\u00e9",
                                                                 " Stra",
                                                                 "\u00df",
                                                                 "e",
                                                                 " ",
                                                                 "\u4f60\u597d",
                                                                 "2",
                                                                 "\u4eba",
                                                                 ",",
                                                                 " ",
                                                                 "\u30ab\u30bf",
                                                                 " \u0410\u0431",
                                                                 "\n",
                                                                 "\n",
                                                                 "$",
                                                                 "a",
                                                                 "_",
                                                                 "b",
                                                                 " =",
                                                                 " ",
                                                                 "\u0664",
                                                                 "!",
                                                                 "don",
                                                                 "'",
                                                                 "t",
                                                                 " ",
                                                                 " <",
                                                                 "x",
                                                                 ">",
                                                                 "\ufb01",
                                                                 "  "}));
}

TEST(GgufTokenizer, ScoresDecideAndBytesSpellTheRest) {
  // "ab" scores above "bc", so "abc" is ab + c; e-acute has no piece and becomes its bytes.
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>", "\u2581", "a",
                                     "b",     "c",   "ab",   "bc",     "\u2581ab"};
  std::vector<int32_t> types = {2, 3, 3, 1, 1, 1, 1, 1, 1, 1};
  std::vector<float> scores = {0, 0, 0, -9, -9, -9, -9, -1, -2, -3};
  for (const char* byte : {"<0xC3>", "<0xA9>"}) {
    tokens.push_back(byte);
    types.push_back(6);
    scores.push_back(0);
  }
  GgufTestFile file;
  file.Text("tokenizer.ggml.model", "llama")
      .Texts("tokenizer.ggml.tokens", tokens)
      .I32s("tokenizer.ggml.token_type", types)
      .F32s("tokenizer.ggml.scores", scores)
      .U32("tokenizer.ggml.bos_token_id", 1)
      .U32("tokenizer.ggml.eos_token_id", 2)
      .U32("tokenizer.ggml.unknown_token_id", 0);
  const std::string bytes = file.Bytes(0);
  const auto tokenizer = FromGguf(bytes);
  EXPECT_EQ(tokenizer->Encode("abc"), (std::vector<Token>{1, 9, 6}));
  EXPECT_EQ(tokenizer->Encode("c\u00e9"), (std::vector<Token>{1, 3, 6, 10, 11}));
  EXPECT_EQ(tokenizer->Encode("a</s>b"), (std::vector<Token>{1, 3, 4, 2, 3, 5}));
  EXPECT_EQ(tokenizer->Decode(std::vector<Token>{1, 9, 6}), "abc");
  const auto header = GgufHeader::Parse(std::as_bytes(std::span(bytes)));
  const auto special = GgufSpecialTokens::Read(header->metadata);
  EXPECT_EQ(special->stops, (std::vector<Token>{2}));
  EXPECT_EQ(special->Texts(*header->metadata.Strings("tokenizer.ggml.tokens")).Dump(),
            R"({"bos_token":"<s>","eos_token":"</s>","unk_token":"<unk>"})");
}

// As of converted tokenizer.json files: the order of the tokens decides, of blanks last.
TEST(GgufTokenizer, EqualScoresAreNone) {
  const std::string blank = "\u2581";
  const std::vector<std::string> tokens = {"<unk>", blank,       blank + blank, "a",         "b",
                                           "ab",    blank + "a", blank + "b",   blank + "ab"};
  GgufTestFile file;
  file.Text("tokenizer.ggml.model", "llama")
      .Texts("tokenizer.ggml.tokens", tokens)
      .I32s("tokenizer.ggml.token_type", {2, 1, 1, 1, 1, 1, 1, 1, 1})
      .F32s("tokenizer.ggml.scores", std::vector<float>(tokens.size(), -1000))
      .Bool("tokenizer.ggml.add_space_prefix", false)
      .Bool("tokenizer.ggml.add_bos_token", false)
      .U32("tokenizer.ggml.unknown_token_id", 0);
  const auto tokenizer = FromGguf(file.Bytes(0));
  EXPECT_EQ(tokenizer->Encode("   ab"), (std::vector<Token>{2, 8}));
  EXPECT_EQ(tokenizer->Encode("  b"), (std::vector<Token>{1, 7}));
  EXPECT_EQ(tokenizer->Encode("a  "), (std::vector<Token>{3, 2}));
}

// Merges of such pieces would be read as something else if they were one string.
TEST(GgufTokenizer, PiecesMayHaveBlanksAndLookLikeAHeader) {
  std::vector<std::string> tokens = {"<unk>", " ", "a", "a ", "a b", "b", "1"};
  const std::string header = "#version";
  for (size_t i = 0; i < header.size(); ++i) tokens.push_back(header.substr(i, 1));
  for (size_t size = 2; size <= header.size(); ++size) tokens.push_back(header.substr(0, size));
  tokens.push_back(header + "1");
  std::vector<int32_t> types(tokens.size(), 1);
  types[0] = 2;
  std::vector<float> scores;
  for (const std::string& token : tokens) scores.push_back(-static_cast<float>(token.size()));
  GgufTestFile file;
  file.Text("tokenizer.ggml.model", "llama")
      .Texts("tokenizer.ggml.tokens", tokens)
      .I32s("tokenizer.ggml.token_type", types)
      .F32s("tokenizer.ggml.scores", scores)
      .Bool("tokenizer.ggml.add_space_prefix", false)
      .Bool("tokenizer.ggml.add_bos_token", false)
      .U32("tokenizer.ggml.unknown_token_id", 0);
  const auto tokenizer = FromGguf(file.Bytes(0));
  EXPECT_EQ(tokenizer->Encode("#version1"),
            (std::vector<Token>{static_cast<Token>(tokens.size() - 1)}));
  EXPECT_EQ(tokenizer->Encode("a"), (std::vector<Token>{2}));
}

// As in the tokenizer.json that such a file is converted to.
TEST(GgufTokenizer, OfTokensOfOneTextTheLastCounts) {
  GgufTestFile file;
  file.Text("tokenizer.ggml.model", "llama")
      .Texts("tokenizer.ggml.tokens", {"<unk>", "c", "\u2581", "\u2581c", "c", "\u2581c"})
      .I32s("tokenizer.ggml.token_type", {2, 1, 1, 1, 1, 1})
      .F32s("tokenizer.ggml.scores", {0, -9, -9, -1, -9, -1})
      .U32("tokenizer.ggml.unknown_token_id", 0);
  const std::string bytes = file.Bytes(0);
  const auto header = GgufHeader::Parse(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(header.ok());
  const auto json = GgufTokenizerJson(header->metadata);
  ASSERT_TRUE(json.ok()) << json.error().message;
  const auto written = Tokenizer::FromJson(*Json::Parse(json->Dump()));
  ASSERT_TRUE(written.ok()) << written.error().message;
  const auto own = FromGguf(bytes);
  EXPECT_EQ(own->Encode("cc"), (std::vector<Token>{5, 4}));
  EXPECT_EQ((*written)->Encode("cc"), own->Encode("cc"));
}

// Whatever a file says: these models were trained with a BOS. Merges are ranked, and a part of one
// may begin with a blank.
TEST(GgufTokenizer, Gemma4BeginsWithBos) {
  GgufTestFile file;
  file.Text("tokenizer.ggml.model", "gemma4")
      .Texts("tokenizer.ggml.tokens", {"<unk>", "<eos>", "<bos>", "\u2581", "h", "i", "hi",
                                       "\u2581hi", "<0xC3>", "<0xA9>", "<|turn>", "<|channel>"})
      .I32s("tokenizer.ggml.token_type", {2, 3, 3, 1, 1, 1, 1, 1, 6, 6, 3, 4})
      .Texts("tokenizer.ggml.merges", {"h i", "\u2581 hi"})
      .Bool("tokenizer.ggml.add_bos_token", false)
      .U32("tokenizer.ggml.bos_token_id", 2)
      .U32("tokenizer.ggml.eos_token_id", 1)
      .U32("tokenizer.ggml.unknown_token_id", 0);
  const auto tokenizer = FromGguf(file.Bytes(0));
  EXPECT_EQ(tokenizer->Encode("hi hi"), (std::vector<Token>{2, 6, 7}));
  EXPECT_EQ(tokenizer->Encode("\u00e9<|turn>hi", {.add_special = false}),
            (std::vector<Token>{8, 9, 10, 6}));
  EXPECT_FALSE(tokenizer->IsSpecial(11));  // visible, so that thoughts can be read
}

// As in Google's own quantized files.
TEST(GgufTokenizer, MarksOfGemmaAmongNormalTokens) {
  for (const bool is_gemma : {true, false}) {
    GgufTestFile file;
    file.Text("general.architecture", is_gemma ? "gemma3" : "llama")
        .Text("tokenizer.ggml.model", "llama")
        .Texts("tokenizer.ggml.tokens",
               {"<unk>", "<start_of_turn>", "<end_of_turn>", "h", "i", "<", ">", "hi", "<0x3C>"})
        .F32s("tokenizer.ggml.scores", {0, 0, 0, -2, -3, -4, -5, -1, 0})
        .I32s("tokenizer.ggml.token_type", {2, 1, 1, 1, 1, 1, 1, 1, 6})
        .Bool("tokenizer.ggml.add_space_prefix", false)
        .U32("tokenizer.ggml.unknown_token_id", 0);
    const auto tokenizer = FromGguf(file.Bytes(0));
    const std::vector<Token> whole = {1, 7, 2};
    const auto tokens = tokenizer->Encode("<start_of_turn>hi<end_of_turn>",
                                          {.add_special = false, .parse_special = true});
    EXPECT_EQ(tokens == whole, is_gemma);
    EXPECT_EQ(tokenizer->IsSpecial(1), is_gemma);
    EXPECT_FALSE(tokenizer->IsSpecial(7));
    // Text of a user is text.
    EXPECT_NE(tokenizer->Encode("<end_of_turn>", {.add_special = false, .parse_special = false}),
              std::vector<Token>{2});
  }
}

TEST(GgufTokenizer, TheFirstStopIsEos) {
  GgufTestFile file;
  file.Text("tokenizer.ggml.model", "gpt2")
      .Texts("tokenizer.ggml.tokens", {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "a"})
      .I32s("tokenizer.ggml.token_type", {3, 3, 3, 1})
      .U32("tokenizer.ggml.eos_token_id", 2);
  const std::string bytes = file.Bytes(0);
  const auto header = GgufHeader::Parse(std::as_bytes(std::span(bytes)));
  EXPECT_EQ(GgufSpecialTokens::Read(header->metadata)->stops, (std::vector<Token>{2, 0}));
}

// What Hugging Face's own reader wants of a tokenizer.json: it numbers added tokens that are not in
// the vocabulary from its end on, and takes merges of one kind.
TEST(GgufTokenizer, OtherReadersTakeWhatIsWritten) {
  GgufTestFile file;
  file.Text("tokenizer.ggml.model", "llama")
      .Texts("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "a", "b", " ", "ab", "a ", "<tool>"})
      .I32s("tokenizer.ggml.token_type", {2, 3, 3, 1, 1, 1, 1, 1, 4})
      .F32s("tokenizer.ggml.scores", {0, 0, 0, -9, -9, -9, -1, -2, 0})
      .Bool("tokenizer.ggml.add_bos_token", true)
      .Bool("tokenizer.ggml.add_eos_token", true)
      .U32("tokenizer.ggml.bos_token_id", 1)
      .U32("tokenizer.ggml.eos_token_id", 2)
      .U32("tokenizer.ggml.unknown_token_id", 0);
  const std::string bytes = file.Bytes(0);
  const auto header = GgufHeader::Parse(std::as_bytes(std::span(bytes)));
  auto json = GgufTokenizerJson(header->metadata);
  ASSERT_TRUE(json.ok()) << json.error().message;
  const auto own = *Tokenizer::FromJson(*json);
  MakeMergesAlike(&*json);
  const Json& model = *json->Find("model");
  ASSERT_EQ(json->Find("added_tokens")->as_array().size(), 4u);
  for (const Json& added : json->Find("added_tokens")->as_array()) {
    for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized", "special"}) {
      EXPECT_TRUE(added.GetBool(flag).ok()) << flag;
    }
    const Json* const id = model.Find("vocab")->Find(*added.GetString("content"));
    ASSERT_NE(id, nullptr) << *added.GetString("content");
    EXPECT_EQ(*id, *added.Find("id"));
  }
  EXPECT_EQ(*model.Find("merges"),
            Json(Json::Array{Json(Json::Array{"a", "b"}), Json(Json::Array{"a", " "})}));
  const Json& around = *json->Find("post_processor");
  EXPECT_EQ(around.Find("single")->as_array().size(), 3u);
  EXPECT_EQ(around.Find("pair")->as_array().size(), 6u);
  EXPECT_EQ(
      *around.Find("special_tokens")->Find("<s>"),
      Json(Json::Object{
          {"id", "<s>"}, {"ids", Json::Array{Json(int64_t{1})}}, {"tokens", Json::Array{"<s>"}}}));
  const auto written = *Tokenizer::FromJson(*json);
  for (const char* text : {"aab", "<tool>ab</s>", "a b<s>", "c"}) {
    EXPECT_EQ(written->Encode(text), own->Encode(text)) << text;
  }
}

// Ministral's files of Ollama say "default" or nothing: numbers are cut digit by digit all the
// same.
TEST(GgufTokenizer, Mistral3IsCutAsTekken) {
  const auto tokens_of = [](const char* architecture, const char* pre) {
    GgufTestFile file;
    file.Text("general.architecture", architecture).Text("tokenizer.ggml.model", "gpt2");
    if (pre != nullptr) file.Text("tokenizer.ggml.pre", pre);
    file.Texts("tokenizer.ggml.tokens", {"1", "2", "12"})
        .I32s("tokenizer.ggml.token_type", {1, 1, 1})
        .Texts("tokenizer.ggml.merges", {"1 2"})
        .Bool("tokenizer.ggml.add_bos_token", false);
    return FromGguf(file.Bytes(0))->Encode("12");
  };
  for (const char* const pre : {static_cast<const char*>(nullptr), "default", "tekken"}) {
    EXPECT_EQ(tokens_of("mistral3", pre), (std::vector<Token>{0, 1}));
  }
  EXPECT_EQ(tokens_of("llama", "default"), (std::vector<Token>{2}));
  EXPECT_EQ(tokens_of("mistral3", "gpt-2"), (std::vector<Token>{2}));
}

// ignore_merges looks whole words up, among which control tokens must not be.
TEST(GgufTokenizer, NoWordOfATextIsAControlToken) {
  GgufTestFile file;
  file.Text("tokenizer.ggml.model", "gpt2")
      .Text("tokenizer.ggml.pre", "llama-bpe")
      .Texts("tokenizer.ggml.tokens", {"e", "n", "d", "end", "en"})
      .I32s("tokenizer.ggml.token_type", {1, 1, 1, 3, 1})
      .Texts("tokenizer.ggml.merges", {"e n"})
      .Bool("tokenizer.ggml.add_bos_token", false);
  const auto tokenizer = FromGguf(file.Bytes(0));
  EXPECT_EQ(tokenizer->Encode("end", {.parse_special = false}), (std::vector<Token>{4, 2}));
  EXPECT_EQ(tokenizer->Encode("end", {.parse_special = true}), (std::vector<Token>{3}));
  EXPECT_EQ(tokenizer->Encode("en", {.parse_special = false}), (std::vector<Token>{4}));
}

TEST(GgufTokenizer, WhatIsNotKnownIsNamed) {
  const auto error = [](GgufTestFile file) {
    const std::string bytes = file.Bytes(0);
    const auto header = GgufHeader::Parse(std::as_bytes(std::span(bytes)));
    const auto json = GgufTokenizerJson(header->metadata);
    return json.ok() ? std::string() : json.error().message;
  };
  GgufTestFile base;
  base.Text("tokenizer.ggml.model", "gpt2");
  EXPECT_NE(error(base).find("'tokenizer.ggml.tokens' is missing"), std::string::npos);
  base.Texts("tokenizer.ggml.tokens", {"a", "b"});
  EXPECT_EQ(error(base), "");
  EXPECT_NE(error(GgufTestFile()
                      .Text("tokenizer.ggml.model", "gpt2")
                      .Texts("tokenizer.ggml.tokens", {"a", "\u00e9", "ab"}))
                .find("'tokenizer.ggml.merges' is missing, and token 2"),
            std::string::npos);
  GgufTestFile pre = base;
  EXPECT_NE(error(pre.Text("tokenizer.ggml.pre", "mystery")).find("'mystery'"), std::string::npos);
  GgufTestFile types = base;
  EXPECT_NE(error(types.I32s("tokenizer.ggml.token_type", {1})).find("token_type"),
            std::string::npos);
  GgufTestFile bos = base;
  EXPECT_NE(error(bos.U32("tokenizer.ggml.bos_token_id", 2)).find("'tokenizer.ggml.bos_token_id'"),
            std::string::npos);
  GgufTestFile broken;
  broken.Text("tokenizer.ggml.model", "gpt2").Texts("tokenizer.ggml.tokens", {"\xC3"});
  EXPECT_NE(error(broken).find("token 0 is no valid UTF-8"), std::string::npos);
  EXPECT_NE(error(GgufTestFile().Text("tokenizer.ggml.model", "rwkv")).find("'rwkv'"),
            std::string::npos);
}

// All substrings of a text can be cut everywhere: few tokens, and merges by the cube.
TEST(GgufTokenizer, WaysToCutPiecesAreBounded) {
  std::string text;
  for (int i = 0; i < 180; ++i) text += static_cast<char>('!' + i * i % 89);
  std::set<std::string> pieces;
  for (size_t begin = 0; begin < text.size(); ++begin) {
    for (size_t size = 1; begin + size <= text.size(); ++size) {
      pieces.insert(text.substr(begin, size));
    }
  }
  GgufTestFile file;
  file.Text("tokenizer.ggml.model", "llama");
  file.Texts("tokenizer.ggml.tokens", std::vector<std::string>(pieces.begin(), pieces.end()));
  file.F32s("tokenizer.ggml.scores", std::vector<float>(pieces.size(), 0.0f));
  const std::string bytes = file.Bytes(0);
  const auto header = GgufHeader::Parse(std::as_bytes(std::span(bytes)));
  ASSERT_TRUE(header.ok()) << header.error().message;
  const auto json = GgufTokenizerJson(header->metadata);
  ASSERT_FALSE(json.ok());
  EXPECT_NE(json.error().message.find("'tokenizer.ggml.tokens': its pieces can be cut"),
            std::string::npos)
      << json.error().message;
}

}  // namespace
}  // namespace kvasir
