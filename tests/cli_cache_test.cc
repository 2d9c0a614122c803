// Caches in files, from one run of the program to the next: generate --save-cache and --load-cache,
// /save and /load of chat; and packed weights. Deliberately not the files' formats:
// snapshot_file_test.cc, packed_weights_file_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "kvasir/base/file.h"
#include "kvasir/base/json.h"
#include "kvasir/formats/test_files.h"
#include "tests/support/program.h"

namespace kvasir {
namespace {

const char* const kDemo = KVASIR_SOURCE_DIR "/models/kvasir-demo";

bool Contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// Longer than the model's windows of 256 tokens.
std::string LongPrompt() {
  std::string text = "Once there was a house with";
  for (int i = 0; i < 120; ++i)
    text.append(" ").append(std::to_string(i * 37 % 100)).append(" rooms,");
  return text;
}

std::vector<std::string> GenerateArgs(std::vector<std::string> more, const char* model = kDemo) {
  std::vector<std::string> args = {"generate", "-m", model, "--json",      "--temp",
                                   "1.2",      "-n", "24",  "--ignore-eos"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

Json Generate(std::vector<std::string> more) {
  const ProgramResult result = RunProgram(GenerateArgs(std::move(more)));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  auto json = Json::Parse(result.out);
  KVASIR_CHECK(json.ok());
  return *std::move(json);
}

int64_t Stat(const Json& answer, const char* name) {
  return answer.Find("stats")->GetInt(name).value();
}

class CacheFileTest : public testing::TestWithParam<std::vector<std::string>> {
 protected:
  Json With(std::vector<std::string> more) {
    more.insert(more.end(), GetParam().begin(), GetParam().end());
    return Generate(std::move(more));
  }
};

TEST_P(CacheFileTest, ASecondProcessEvaluatesOneTokenAndAnswersTheSame) {
  ScratchFolder scratch;
  const std::string path = scratch.File("cache.kv");
  const Json first = With({"-p", LongPrompt(), "--save-cache", path});
  EXPECT_EQ(Stat(first, "cached_tokens"), 0);
  const Json second = With({"-p", LongPrompt(), "--load-cache", path, "--save-cache", path});
  EXPECT_EQ(Stat(second, "cached_tokens"), Stat(second, "prompt_tokens") - 1);
  EXPECT_EQ(*second.Find("tokens"), *first.Find("tokens"));
  // What was saved over it is whole; another prompt shares what it shares, and no more.
  const std::string other = LongPrompt() + " and then";
  const Json cold = With({"-p", other});
  const Json warm = With({"-p", other, "--load-cache", path});
  EXPECT_EQ(*warm.Find("tokens"), *cold.Find("tokens"));
  EXPECT_GT(Stat(warm, "cached_tokens"), Stat(first, "prompt_tokens") / 2);
  const Json unlike = With({"-p", "Something else", "--load-cache", path});
  EXPECT_EQ(*unlike.Find("tokens"), *With({"-p", "Something else"}).Find("tokens"));
  EXPECT_LE(Stat(unlike, "cached_tokens"), 1);  // the first token may be the same one everywhere
}

INSTANTIATE_TEST_SUITE_P(
    Options, CacheFileTest,
    testing::Values(std::vector<std::string>{},
                    std::vector<std::string>{"--kv-bits", "3.5", "--kv-quant-scheme", "turboquant",
                                             "--kv-window-layers", "packed"},
                    std::vector<std::string>{"--kv-bits", "4", "--kv-recent", "64", "--kv-budget",
                                             "256", "--kv-compact-interval", "64"}));

TEST(CacheFileErrorsTest, WhatDoesNotFitIsRefusedWithAReason) {
  ScratchFolder scratch;
  const std::string path = scratch.File("cache.kv");
  Generate({"-p", "Hello", "--save-cache", path});
  const std::string whole = *ReadFile(path);
  const auto refused = [&](std::vector<std::string> more, int exit_code,
                           std::vector<std::string> reasons, const char* model = kDemo) {
    const ProgramResult result = RunProgram(GenerateArgs(std::move(more), model));
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_EQ(result.out, "");
    for (const std::string& reason : reasons) {
      EXPECT_TRUE(Contains(result.err, reason)) << reason << " is not in\n" << result.err;
    }
  };
  const std::string missing = scratch.File("missing.kv");
  refused({"-p", "Hello", "--load-cache", missing}, 3, {missing});
  const std::string cut = scratch.Write("cut.kv", whole.substr(0, whole.size() - 100));
  refused({"-p", "Hello", "--load-cache", cut}, 4, {cut});
  refused({"-p", "Hello", "--load-cache", scratch.Write("text.kv", "no cache")}, 4, {"text.kv"});
  refused({"-p", "Hello", "--load-cache", path, "--kv-bits", "8"}, 2, {path, "'f16; ", "affine8"});
  refused({"-p", "Hello", "--load-cache", path, "--weights", "q8"}, 2, {path, "--weights"});
  refused({"-p", "Hello", "--load-cache", path}, 2, {path, "'kvasir-demo'", "'kvasir-demo-draft'"},
          KVASIR_SOURCE_DIR "/models/kvasir-demo-draft");
  refused({"-p", "Hello", "--load-cache", path, "--cache-bytes", "1K"}, 6, {path});
}

TEST(CacheFileErrorsTest, WhatCannotBeSavedIsSaidAtOnce) {
  ScratchFolder scratch;
  const std::string path = scratch.File("no/such/folder/cache.kv");
  const ProgramResult result = RunProgram(GenerateArgs({"-p", "Hello", "--save-cache", path}));
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_TRUE(Contains(result.err, scratch.File("no/such/folder"))) << result.err;
  EXPECT_EQ(result.out, "");
}

// Not after a long answer.
TEST(CacheFileErrorsTest, WhatCannotBeSavedIsSaidFirst) {
  ScratchFolder scratch;
  const std::string path = scratch.File("taken");
  std::filesystem::create_directory(path);
  const ProgramResult result = RunProgram(GenerateArgs({"-p", "Hello", "--save-cache", path}));
  EXPECT_EQ(result.exit_code, 7);
  EXPECT_TRUE(Contains(result.err, path)) << result.err;
  EXPECT_EQ(result.out, "");
}

// A slip of the hand costs no file: only one of the kind that is written there is replaced.
TEST(CacheFileErrorsTest, OtherFilesAreNotWrittenOver) {
  ScratchFolder scratch;
  const std::string cache = scratch.File("cache.kv");
  const std::string other = scratch.Write("notes.txt", "notes");
  Generate({"-p", "Hello", "--save-cache", cache});
  const std::string saved = *ReadFile(cache);
  const std::vector<std::string> logits = {"logits", "-m", kDemo, "--tokens", "1 2", "-o"};
  const std::vector<std::string> inspect = {"inspect", cache, "--svg"};
  for (const auto& [args, file] : {std::pair{GenerateArgs({"-p", "Hello", "--save-cache"}), other},
                                   {logits, other},
                                   {logits, cache},
                                   {inspect, other},
                                   {inspect, cache}}) {
    std::vector<std::string> line = args;
    line.push_back(file);
    const ProgramResult result = RunProgram(line);
    EXPECT_EQ(result.exit_code, 1) << result.err;
    EXPECT_TRUE(Contains(result.err, file + " exists and is no ")) << result.err;
  }
  EXPECT_EQ(*ReadFile(other), "notes");
  EXPECT_EQ(*ReadFile(cache), saved);
  for (const auto& [args, file] :
       {std::pair{logits, scratch.File("logits.npy")}, {inspect, scratch.File("blocks.svg")}}) {
    std::vector<std::string> line = args;
    line.push_back(file);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(RunProgram(line).exit_code, 0);  // again: replaced
  }
}

TEST(ChatFileTest, AConversationGoesOnInAnotherProcess) {
  ScratchFolder scratch;
  const std::string path = scratch.File("talk.kv");
  const auto chat = [](const std::string& input) {
    Program program({"chat", "-m", kDemo, "-n", "16", "--temp", "0"});
    program.Write(input + "/quit\n");
    ProgramResult result = program.Finish();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result;
  };
  const auto last_line = [](const std::string& text) {
    const size_t end = text.find_last_not_of('\n');
    const size_t begin = text.rfind('\n', end);
    return text.substr(begin == std::string::npos ? 0 : begin + 1, end - begin);
  };
  const ProgramResult whole = chat("Hello.\nWhat can you do?\n/save " + path + "\nAgain please?\n");
  const size_t saved = whole.err.find(" tokens saved");
  ASSERT_NE(saved, std::string::npos) << whole.err;
  const size_t number = whole.err.rfind(' ', saved - 1) + 1;
  const std::string position = whole.err.substr(number, saved - number);
  const ProgramResult rest =
      chat("/load " + path + "\nAgain please?\n/stats\n/undo\n/undo\n/undo\n/undo\n");
  EXPECT_EQ(last_line(rest.out), last_line(whole.out));
  for (const std::string& wanted :
       {"branch 1, " + position + " tokens", "(" + position + " from cache)",
        std::string("to 0 tokens"), std::string("there is no turn to undo")}) {
    EXPECT_TRUE(Contains(rest.err, wanted)) << wanted << " is not in\n" << rest.err;
  }
}

TEST(ChatFileTest, FailuresLeaveTheConversation) {
  ScratchFolder scratch;
  const std::string rows = scratch.File("rows.kv");
  Generate({"-p", "Hello", "--save-cache", rows});
  Program program({"chat", "-m", kDemo, "-n", "4", "--temp", "0"});
  program.Write("/load " + scratch.File("missing.kv") + "\n/load " + rows + "\n/save " +
                scratch.File("no/folder/x.kv") + "\n/save \n/load \nHello.\n/stats\n/quit\n");
  const ProgramResult result = program.Finish();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* wanted : {"missing.kv", "no list 'messages'", "no/folder/x.kv",
                             "/save needs a file", "/load needs a file", "branch 0 of 1"}) {
    EXPECT_TRUE(Contains(result.err, wanted)) << wanted << " is not in\n" << result.err;
  }
}

TEST(PackedWeightsTest, TheSecondRunMapsThemAndAnswersTheSame) {
  ScratchFolder scratch;
  const std::vector<std::string> kept = {"--prompt", "Hi", "--packed-weights",
                                         scratch.File("made")};
  const ProgramResult plain = RunProgram(GenerateArgs({"--prompt", "Hi"}));
  const ProgramResult first = RunProgram(GenerateArgs(kept));
  const ProgramResult second = RunProgram(GenerateArgs(kept));
  for (const ProgramResult* result : {&plain, &first, &second}) {
    ASSERT_EQ(result->exit_code, 0) << result->err;
    const auto json = Json::Parse(result->out);
    ASSERT_TRUE(json.ok());
    EXPECT_EQ(json->GetString("text").value(), Json::Parse(plain.out)->GetString("text").value());
  }
  EXPECT_FALSE(Contains(plain.err, "packed weights")) << plain.err;
  EXPECT_TRUE(Contains(first.err, "packed weights: wrote ")) << first.err;
  EXPECT_TRUE(Contains(second.err, "packed weights: mapped ")) << second.err;
}

TEST(PackedWeightsTest, MadeUpWeightsAreNotKept) {
  ScratchFolder scratch;
  const ProgramResult result = RunProgram(GenerateArgs(
      {"--packed-weights", scratch.File("made"), "--random-weights", "--prompt", "Hi"}));
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_FALSE(Contains(result.err, "packed weights")) << result.err;
  EXPECT_EQ(scratch.FileCount(), 0u);
}

}  // namespace
}  // namespace kvasir
