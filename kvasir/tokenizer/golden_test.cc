// Compares ids, texts, words and normalized texts with those of the reference implementation.
// Deliberately without goldens of its own: they are reference data outside the repository, and
// where that is absent these tests skip.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/file.h"
#include "kvasir/tokenizer/normalizer.h"
#include "kvasir/tokenizer/pre_tokenizer.h"
#include "kvasir/tokenizer/streaming_detokenizer.h"
#include "kvasir/tokenizer/tokenizer.h"

namespace kvasir {
namespace {

constexpr const char* kTokenizers[] = {"qwen3", "phi-3-mini", "phi-2", "smollm2",
                                       "sp-metaspace-first"};

std::string Root() { return std::string(KVASIR_SHARED_DATA) + "/tokenizers/"; }

bool HaveGoldens() {
  return !std::string_view(KVASIR_SHARED_DATA).empty() && DirectoryExists(Root() + "goldens");
}

#define SKIP_WITHOUT_GOLDENS() \
  if (!HaveGoldens())          \
  GTEST_SKIP() << "reference data is absent: set KVASIR_SHARED_DATA to a folder with tokenizers/"

// Lines end at \n only; strings may hold other line separators.
std::vector<Json> ReadLines(const std::string& name) {
  const Result<std::string> text = ReadFile(Root() + "goldens/" + name);
  if (!text.ok()) {
    ADD_FAILURE() << text.error().message;
    return {};
  }
  std::vector<Json> lines;
  std::string_view rest = *text;
  while (!rest.empty()) {
    const size_t end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (line.empty()) continue;
    Result<Json> json = Json::Parse(line);
    EXPECT_TRUE(json.ok()) << name;
    if (json.ok()) lines.push_back(std::move(*json));
  }
  EXPECT_FALSE(lines.empty()) << name;
  return lines;
}

std::vector<Token> Ids(const Json& json) {
  std::vector<Token> ids;
  for (const Json& id : json.as_array()) ids.push_back(static_cast<Token>(id.as_int()));
  return ids;
}

const std::string& Text(const Json& line, std::string_view key) {
  return line.Find(key)->as_string();
}

std::string Stream(const Tokenizer& tokenizer, const std::vector<Token>& ids, bool skip_special) {
  StreamingDetokenizer stream(tokenizer, {{.skip_special = skip_special}});
  std::string text;
  for (const Token id : ids) text += stream.Push(id);
  return text + stream.Finish();
}

class GoldenTest : public testing::TestWithParam<const char*> {
 protected:
  void Load() {
    auto loaded = Tokenizer::FromFile(Root() + "tokenizers/" + GetParam() + "/tokenizer.json");
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    tokenizer_ = std::move(*loaded);
  }
  void CheckDecoding(const std::vector<Token>& ids, const Json& line) {
    EXPECT_EQ(tokenizer_->Decode(ids, {.skip_special = false}), Text(line, "decoded"));
    EXPECT_EQ(tokenizer_->Decode(ids, {.skip_special = true}), Text(line, "decoded_skip_special"));
  }
  std::unique_ptr<const Tokenizer> tokenizer_;
};

TEST_P(GoldenTest, Encodes) {
  SKIP_WITHOUT_GOLDENS();
  ASSERT_NO_FATAL_FAILURE(Load());
  for (const Json& line : ReadLines(std::string("encode_") + GetParam() + ".jsonl")) {
    SCOPED_TRACE(line.Find("id")->Dump());
    const std::string& text = Text(line, "text");
    const std::vector<Token> with = Ids(*line.Find("ids_with_special"));
    EXPECT_EQ(tokenizer_->Encode(text, {.add_special = true}), with);
    EXPECT_EQ(tokenizer_->Encode(text, {.add_special = false}),
              Ids(*line.Find("ids_without_special")));
    CheckDecoding(with, line);
    EXPECT_EQ(Stream(*tokenizer_, with, false), Text(line, "decoded"));
    EXPECT_EQ(Stream(*tokenizer_, with, true), Text(line, "decoded_skip_special"));
  }
}

TEST_P(GoldenTest, Decodes) {
  SKIP_WITHOUT_GOLDENS();
  ASSERT_NO_FATAL_FAILURE(Load());
  for (const Json& line : ReadLines(std::string("decode_") + GetParam() + ".jsonl")) {
    SCOPED_TRACE(line.Find("ids")->Dump());
    CheckDecoding(Ids(*line.Find("ids")), line);
  }
}

// In a run of byte tokens that turns out invalid, the stream has shown the complete characters
// before the first invalid byte already, where Decode shows one U+FFFD per byte. Everything else
// must be the same.
std::string WithoutReplacement(std::string_view text) {
  std::string kept;
  for (size_t i = 0; i < text.size();) {
    if (text.substr(i).starts_with("\xEF\xBF\xBD")) {
      i += 3;
    } else {
      kept += text[i++];
    }
  }
  return kept;
}

bool IsSubsequence(std::string_view part, std::string_view whole) {
  size_t matched = 0;
  for (const char byte : whole) {
    if (matched < part.size() && part[matched] == byte) ++matched;
  }
  return matched == part.size();
}

TEST_P(GoldenTest, StreamsWhatDecodeGives) {
  SKIP_WITHOUT_GOLDENS();
  ASSERT_NO_FATAL_FAILURE(Load());
  for (const Json& line : ReadLines(std::string("decode_") + GetParam() + ".jsonl")) {
    SCOPED_TRACE(line.Find("ids")->Dump());
    const std::string& decoded = Text(line, "decoded");
    const std::string streamed = Stream(*tokenizer_, Ids(*line.Find("ids")), false);
    if (decoded.find("\xEF\xBF\xBD") == std::string::npos) {
      EXPECT_EQ(streamed, decoded);
    } else {
      EXPECT_TRUE(IsSubsequence(WithoutReplacement(decoded), streamed))
          << decoded << " against " << streamed;
    }
  }
}

TEST_P(GoldenTest, EverySplitIntoSegmentsGivesTheIdsOfTheWhole) {
  SKIP_WITHOUT_GOLDENS();
  ASSERT_NO_FATAL_FAILURE(Load());
  for (const Json& line : ReadLines(std::string("encode_") + GetParam() + ".jsonl")) {
    const std::string& text = Text(line, "text");
    if (text.size() > 200) continue;
    const std::vector<Token> whole = tokenizer_->Encode(text);
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      // A character cut in two is no text in either segment.
      if (cut < text.size() && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) continue;
      const TextSegments segments = {{text.substr(0, cut), true}, {text.substr(cut), true}};
      EXPECT_EQ(tokenizer_->EncodeSegments(segments), whole) << text << " cut at " << cut;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tokenizers, GoldenTest, testing::ValuesIn(kTokenizers),
                         [](const auto& info) {
                           std::string name = info.param;
                           std::erase(name, '-');
                           return name;
                         });

Json Configs(const std::string& name) {
  Result<Json> configs = Json::ParseFile(Root() + "goldens/" + name);
  EXPECT_TRUE(configs.ok());
  return configs.ok() ? std::move(*configs) : Json();
}

TEST(PreTokenizerGoldenTest, CutsTheSameWords) {
  SKIP_WITHOUT_GOLDENS();
  std::map<std::string, std::unique_ptr<const PreTokenizer>> kinds;
  const Json configs = Configs("pretokenize_configs.json");
  for (const auto& [kind, config] : configs.as_object()) {
    auto made = PreTokenizer::FromJson(config);
    ASSERT_TRUE(made.ok()) << kind << ": " << made.error().message;
    kinds[kind] = std::move(*made);
  }
  for (const Json& line : ReadLines("pretokenize.jsonl")) {
    PieceList list(Text(line, "text"), PieceOrigin::kTextBegin);
    kinds.at(Text(line, "kind"))->Apply(&list);
    std::vector<std::string> pieces;
    for (const Piece& piece : list.pieces) pieces.emplace_back(list.View(piece));
    std::vector<std::string> expected;
    for (const Json& piece : line.Find("pieces")->as_array()) {
      expected.push_back(piece.as_string());
    }
    EXPECT_EQ(pieces, expected) << Text(line, "kind") << " of " << line.Find("text")->Dump();
  }
}

TEST(NormalizerGoldenTest, NormalizesTheSame) {
  SKIP_WITHOUT_GOLDENS();
  std::map<std::string, std::unique_ptr<const Normalizer>> kinds;
  const Json configs = Configs("normalize_configs.json");
  for (const auto& [kind, config] : configs.as_object()) {
    auto made = Normalizer::FromJson(config);
    ASSERT_TRUE(made.ok()) << kind << ": " << made.error().message;
    kinds[kind] = std::move(*made);
  }
  for (const Json& line : ReadLines("normalize.jsonl")) {
    TracedText text;
    text.bytes = Text(line, "text");
    kinds.at(Text(line, "kind"))->Apply(&text);
    EXPECT_EQ(text.bytes, Text(line, "normalized"))
        << Text(line, "kind") << " of " << line.Find("text")->Dump();
  }
}

}  // namespace
}  // namespace kvasir
