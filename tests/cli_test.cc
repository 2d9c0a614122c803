// Every verb of the program, run as a shell would run it.
// Deliberately not the server: its own tests speak HTTP to it. Bad input: cli_errors_test.cc.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "kvasir/base/file.h"
#include "kvasir/base/json.h"
#include "kvasir/formats/npy.h"
#include "kvasir/formats/test_files.h"
#include "tests/support/program.h"

namespace kvasir {
namespace {

std::string Source(const std::string& path) { return std::string(KVASIR_SOURCE_DIR) + "/" + path; }

// The bundled model: named, because the built program may lie outside the source tree.
const std::string& Demo() {
  static const std::string* const kFolder = new std::string(Source("models/kvasir-demo"));
  return *kFolder;
}
std::string Tiny() { return Source("testdata/models/public_llama_f32"); }

bool Contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

Json ParseOrDie(const std::string& text) {
  auto json = Json::Parse(text);
  KVASIR_CHECK(json.ok());
  return *std::move(json);
}

std::vector<Json> JsonLines(const std::string& text) {
  std::vector<Json> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    lines.push_back(ParseOrDie(text.substr(begin, end - begin)));
    begin = end == std::string::npos ? text.size() : end + 1;
  }
  return lines;
}

class HelpTest : public testing::TestWithParam<std::string> {};

TEST_P(HelpTest, SaysWhatTheVerbDoes) {
  const ProgramResult result = RunProgram({GetParam(), "--help"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_TRUE(Contains(result.out, "Usage: kvasir " + GetParam())) << result.out;
  EXPECT_TRUE(Contains(result.out, "Exit codes"));
}

INSTANTIATE_TEST_SUITE_P(Verbs, HelpTest,
                         testing::Values("generate", "chat", "serve", "logits", "tokenize",
                                         "inspect", "convert", "create", "bench", "replay",
                                         "demo"));

TEST(CliTest, VersionIsAVersion) {
  const ProgramResult result = RunProgram({"--version"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '.'), 2) << result.out;
}

// --- logits

std::string GoldenTokens(const Json& golden) {
  std::string text;
  for (const Json& token : golden.Find("tokens")->as_array()) {
    text += std::to_string(token.as_int()) + " ";
  }
  return text;
}

TEST(LogitsTest, AreThoseOfTheRecording) {
  const Json golden = ParseOrDie(*ReadFile(Tiny() + "/golden.json"));
  ScratchFolder scratch;
  const ProgramResult result =
      RunProgram({"logits", "-m", Tiny(), "--kv-dtype", "f32", "--tokens", GoldenTokens(golden),
                  "--out", scratch.File("logits.npy"), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto matrix = ReadNpy(scratch.File("logits.npy"));
  ASSERT_TRUE(matrix.ok()) << matrix.error().message;
  ASSERT_EQ(matrix->rows, 48);
  ASSERT_EQ(matrix->cols, 256);
  const Json summary = ParseOrDie(result.out);
  EXPECT_EQ(*summary.GetInt("rows"), 48);
  EXPECT_EQ(*summary.GetInt("cols"), 256);

  const Json::Array& wanted = golden.Find("logits")->Find("data")->as_array();
  ASSERT_EQ(matrix->values.size(), wanted.size());
  double worst = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    worst = std::max(worst, std::fabs(matrix->values[i] - wanted[i].as_double()));
  }
  EXPECT_LE(worst, *golden.GetDouble("tolerance"));  // the recording says how exact it is
}

TEST(LogitsTest, BytesDoNotDependOnChunksThreadsOrInstructionSet) {
  const std::string tokens = GoldenTokens(ParseOrDie(*ReadFile(Tiny() + "/golden.json")));
  ScratchFolder scratch;
  const auto bytes = [&](std::vector<std::string> more) {
    std::vector<std::string> args = {
        "logits", "-m", Tiny(), "--tokens", tokens, "--out", scratch.File("x.npy")};
    args.insert(args.end(), more.begin(), more.end());
    const ProgramResult result = RunProgram(args);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return *ReadFile(scratch.File("x.npy"));
  };
  const std::string whole = bytes({});
  EXPECT_EQ(bytes({"--chunk", "1"}), whole);
  EXPECT_EQ(bytes({"--chunk", "7", "--threads", "3"}), whole);
  for (const std::string isa : {"scalar", "avx2", "avx512", "neon"}) {
    const ProgramResult probe = RunProgram({"logits", "-m", Tiny(), "--tokens", "1", "--out",
                                            scratch.File("probe.npy"), "--isa", isa});
    if (probe.exit_code == 5) continue;  // not on this CPU
    EXPECT_EQ(bytes({"--isa", isa}), whole) << isa;
  }
}

// A budget evicts at positions of the sequence, wherever its chunks end.
TEST(LogitsTest, BytesUnderABudgetDoNotDependOnChunks) {
  std::string tokens;
  for (int i = 0; i < 300; ++i) tokens += std::to_string(5 + i * 7 % 900) + " ";
  ScratchFolder scratch;
  const auto bytes = [&](const std::string& chunk) {
    const ProgramResult result = RunProgram(
        {"logits", "-m", Demo(), "--tokens", tokens, "--out", scratch.File("x.npy"), "--chunk",
         chunk, "--kv-budget", "128", "--kv-keep-recent", "64", "--kv-compact-interval", "64"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return *ReadFile(scratch.File("x.npy"));
  };
  EXPECT_EQ(bytes("7"), bytes("512"));
}

// --- generate

std::vector<std::string> GenerateArgs(std::vector<std::string> more) {
  std::vector<std::string> args = {
      "generate", "-m", Demo(), "--json",
      "-n",       "24", "-p",   "Once there was a small house near the river."};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

Json GenerateJson(std::vector<std::string> more) {
  const ProgramResult result = RunProgram(GenerateArgs(std::move(more)));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  return ParseOrDie(result.out);
}

TEST(GenerateTest, SameSeedSameAnswerHoweverItIsComputed) {
  const std::vector<std::string> sampled = {"--temp", "1.5", "--seed", "7", "--ignore-eos"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(), sampled.begin(), sampled.end());
    return GenerateJson(std::move(more));
  };
  const Json first = with({});
  ASSERT_EQ(first.Find("tokens")->as_array().size(), 24u);
  EXPECT_EQ(*first.GetString("finish_reason"), "length");
  EXPECT_EQ(*with({}).Find("tokens"), *first.Find("tokens"));
  EXPECT_EQ(*with({"--threads", "3", "--chunk", "2"}).Find("tokens"), *first.Find("tokens"));
  EXPECT_EQ(*with({"--isa", "scalar"}).Find("tokens"), *first.Find("tokens"));
  EXPECT_EQ(*with({"--draft-kind", "ngram"}).Find("tokens"), *first.Find("tokens"));
  EXPECT_EQ(*with({"--draft-model", Demo() + "-draft", "--draft-max", "3"}).Find("tokens"),
            *first.Find("tokens"));
  // At this temperature, 24 equal tokens under another seed would be a seed that nobody reads.
  EXPECT_FALSE(*GenerateJson({"--temp", "1.5", "--seed", "8", "--ignore-eos"}).Find("tokens") ==
               *first.Find("tokens"));
}

TEST(GenerateTest, StreamsTheTextThatJsonHolds) {
  std::vector<std::string> args = GenerateArgs({"--temp", "0"});
  const Json json = GenerateJson({"--temp", "0"});
  args.erase(std::find(args.begin(), args.end(), "--json"));
  const ProgramResult streamed = RunProgram(args);
  EXPECT_EQ(streamed.exit_code, 0);
  EXPECT_EQ(streamed.out, *json.GetString("text") + "\n");
  EXPECT_TRUE(Contains(streamed.err, "tokens/s")) << streamed.err;
}

TEST(GenerateTest, PromptsComeFromPipesAndStandardInput) {
  const std::vector<std::string> args = {"-m", Demo(), "-n", "8", "--temp", "0"};
  const auto with = [&](std::vector<std::string> first) {
    first.insert(first.begin(), "generate");
    first.insert(first.end(), args.begin(), args.end());
    return first;
  };
  const ProgramResult given = RunProgram(with({"-p", "Once upon a time"}));
  ASSERT_EQ(given.exit_code, 0) << given.err;
  for (const char* file : {"-", "/dev/stdin"}) {
    Program program(with({"-f", file}));
    program.Write("Once upon a time");
    const ProgramResult read = program.Finish();
    EXPECT_EQ(read.exit_code, 0) << read.err;
    EXPECT_EQ(read.out, given.out) << file;
  }
  Program schema(with({"-p", "x", "--json-schema-file", "-"}));
  schema.Write(R"({"const": true})");
  const ProgramResult held = schema.Finish();
  EXPECT_EQ(held.exit_code, 0) << held.err;
  EXPECT_EQ(held.out, "true\n");
  // An empty prompt is one if it is given.
  EXPECT_EQ(RunProgram(with({"-p", ""})).exit_code, 0);
}

TEST(GenerateTest, ABudgetThatTheMachineHasNotIsAWarning) {
  const auto warns = [](const char* bytes) {
    const ProgramResult result =
        RunProgram({"generate", "-m", Demo(), "-p", "x", "-n", "1", "--cache-bytes", bytes});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return Contains(result.err, "a full cache would end this program");
  };
  EXPECT_TRUE(warns("900T"));
  EXPECT_FALSE(warns("8M"));
}

// The library behind the flags would read lists in brackets.
TEST(GenerateTest, StopsAreWhatIsWritten) {
  const auto answer = [](const std::string& stop) {
    return RunProgram({"generate", "-m", Demo(), "-p", "Once upon a time", "-n", "24", "--temp",
                       "1.2", "--ignore-eos", "--stop", stop})
        .out;
  };
  const std::string whole = answer("never said");
  const auto letter = std::find_if(whole.begin(), whole.end(), [](char c) { return c >= 'a'; });
  ASSERT_NE(letter, whole.end()) << whole;
  const std::string stop(1, *letter);
  EXPECT_EQ(answer("[" + stop + ",z]"), whole);
  EXPECT_LT(answer(stop).size(), whole.size());
}

TEST(GenerateTest, CtrlCStopsItWithTheShellsCode) {
  Program program({"generate", "-m", Demo(), "-p", "Tell me a story.", "--temp", "2", "-n", "4000",
                   "--ignore-eos"});
  // The answer has begun, so the handler is in place; 4,000 tokens take far longer than a signal.
  ASSERT_TRUE(program.WaitForOutput("e"));
  program.Signal(SIGINT);
  const ProgramResult result = program.Finish();
  EXPECT_EQ(result.exit_code, 130) << result.err;
  EXPECT_FALSE(result.out.empty());
}

TEST(GenerateTest, AReaderThatGoesAwayIsAnOutputError) {
  Program program({"generate", "-m", Demo(), "-p", "Tell me a story.", "--temp", "2", "-n", "4000",
                   "--ignore-eos"});
  ASSERT_TRUE(program.WaitForOutput("e"));
  program.CloseOutput();
  const ProgramResult result = program.Finish();
  EXPECT_EQ(result.exit_code, 7) << result.err;
  EXPECT_TRUE(Contains(result.err, "standard output")) << result.err;
}

// --- serve

// Before it serves there is nothing to end in order.
TEST(ServeTest, ASignalEndsItWhileItLoads) {
  ScratchFolder model;
  model.Write("config.json",
              *ReadFile(KVASIR_SOURCE_DIR "/testdata/shapes/qwen3-0.6b/config.json"));
  model.Write("tokenizer.json", *ReadFile(std::string(Demo()) + "/tokenizer.json"));
  Program program(
      {"serve", "-m", model.path(), "--random-weights", "--weights", "q4", "--port", "0"});
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
  program.Signal(SIGTERM);
  EXPECT_EQ(program.Finish().signal, SIGTERM);
}

TEST(ServeTest, ASignalEndsItInOrderOnceItServes) {
  for (const int signal : {SIGINT, SIGTERM}) {
    Program program({"serve", "-m", Demo(), "--port", "0", "--cache-bytes", "64M"});
    ASSERT_TRUE(program.WaitForError("listening on"));
    program.Signal(signal);
    const ProgramResult result = program.Finish();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_TRUE(Contains(result.err, "stopping")) << result.err;
  }
}

// --- chat

TEST(ChatTest, CommandsForkUndoAndSwitch) {
  Program program({"chat", "-m", Demo(), "-n", "16", "--temp", "0"});
  program.Write(
      "Hello.\n/stats\n/fork\nWhat can you do?\n/undo\n/undo\n/undo\n/switch 0\n/switch 9\n"
      "/nonsense\n/quit\n");
  const ProgramResult result = program.Finish();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 3) << result.out;
  for (const char* wanted :
       {"branch 0 of 1", "branch 1 of 2", "to 0 tokens", "there is no turn to undo", "branch 0, ",
        "branches are numbered 0 to 1", "unknown command /nonsense"}) {
    EXPECT_TRUE(Contains(result.err, wanted)) << wanted << " is not in\n" << result.err;
  }
}

TEST(ChatTest, DraftsChangeNoWord) {
  const auto said = [](std::vector<std::string> more) {
    std::vector<std::string> args = {"chat", "-m", Demo(), "-n", "40", "--temp", "0.5"};
    args.insert(args.end(), more.begin(), more.end());
    Program program(args);
    program.Write("Hello, hello, hello.\nHello, hello, hello.\n/stats\n/quit\n");
    const ProgramResult result = program.Finish();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  const std::string plain = said({"--seed", "3"});
  EXPECT_EQ(said({"--seed", "3", "--draft-kind", "ngram"}), plain);
  EXPECT_EQ(said({"--seed", "3", "--draft-model", Demo() + "-draft"}), plain);
}

TEST(ChatTest, CtrlCStopsTheAnswerAndNotTheProgram) {
  Program program({"chat", "-m", Demo(), "-n", "4000", "--temp", "3"});
  program.Write("Tell me a story.\n");
  ASSERT_TRUE(program.WaitForOutput("e"));
  program.Signal(SIGINT);
  ASSERT_TRUE(program.WaitForOutput("\n"));
  program.Write("/stats\n");
  ASSERT_TRUE(program.WaitForError("position"));
  const ProgramResult result = program.Finish();
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST(DemoTest, SecondQuestionFindsTheFirstInTheCache) {
  const ProgramResult result = RunProgram({"demo", "-m", Demo(), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<Json> turns = JsonLines(result.out);
  ASSERT_EQ(turns.size(), 2u);
  EXPECT_EQ(*turns[0].Find("stats")->GetInt("cached_tokens"), 0);
  EXPECT_GT(*turns[1].Find("stats")->GetInt("cached_tokens"),
            *turns[0].Find("stats")->GetInt("prompt_tokens") / 2);
}

// --- tokenize, inspect

TEST(TokenizeTest, TextComesBack) {
  const std::string text = "A house, 42 trees and \u00fcber <eos>";
  const ProgramResult result =
      RunProgram({"tokenize", "-m", Demo(), "--no-special", "--json", "-p", text});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json json = ParseOrDie(result.out);
  EXPECT_EQ(*json.GetString("text"), text);
  EXPECT_EQ(json.Find("tokens")->as_array().size(), json.Find("pieces")->as_array().size());
}

TEST(InspectTest, CountsCacheBytes) {
  const ProgramResult result = RunProgram({"inspect", Tiny(), "--json", "--tensors"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json json = ParseOrDie(result.out);
  // 4 layers, 2 heads of 16 for keys and for values, 4 bytes each.
  EXPECT_EQ(*json.Find("kv_cache")->Find("f32")->GetInt("bytes_per_token"), 4 * 2 * 16 * 2 * 4);
  EXPECT_EQ(*json.GetString("family"), "llama");
  EXPECT_FALSE(json.Find("tensors")->as_array().empty());
  EXPECT_EQ(json.Find("kv_cache")->Find("f16")->Find("bytes_at_context")->as_int() * 2,
            json.Find("kv_cache")->Find("f32")->Find("bytes_at_context")->as_int());
  EXPECT_TRUE(*json.GetBool("runs"));
}

// Routers are multiplied as they are, whatever the other matrices are rounded to.
TEST(InspectTest, SaysHowMatricesLieInMemory) {
  const ProgramResult result = RunProgram(
      {"inspect", "--json", KVASIR_SOURCE_DIR "/testdata/models/transformers_qwen3_moe_bf16"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json json = *Json::Parse(result.out);
  const Json* const counts = json.Find("matrices_in_memory");
  ASSERT_NE(counts, nullptr);
  EXPECT_EQ(*counts->GetInt("bf16"), 2) << result.out;
  EXPECT_EQ(*counts->GetInt("bf16_dot"), 53) << result.out;
}

TEST(InspectTest, SaysWhatIsMissing) {
  ScratchFolder scratch;
  scratch.Write("config.json", R"({"architectures": ["MambaForCausalLM"], "vocab_size": 10})");
  const ProgramResult result = RunProgram({"inspect", scratch.path(), "--json"});
  EXPECT_EQ(result.exit_code, 5) << result.err;
  const Json json = ParseOrDie(result.out);
  EXPECT_FALSE(*json.GetBool("runs"));
  EXPECT_NE(json.GetString("reason")->find("MambaForCausalLM"), std::string::npos);
}

TEST(InspectTest, SaysWhichWeightsItCannotRead) {
  ScratchFolder scratch;
  scratch.Write("config.json", *ReadFile(Tiny() + "/config.json"));
  ProgramResult result = RunProgram({"inspect", scratch.path(), "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(*ParseOrDie(result.out).GetString("weights"), "none");
  scratch.Write("pytorch_model.bin", "PK");
  result = RunProgram({"inspect", scratch.path(), "--json"});
  EXPECT_EQ(result.exit_code, 3) << result.err;
  const Json json = ParseOrDie(result.out);
  EXPECT_FALSE(*json.GetBool("runs"));
  EXPECT_NE(json.GetString("reason")->find("but pytorch_model.bin"), std::string::npos);
  scratch.Write("model-00001-of-00001.safetensors", *ReadFile(Tiny() + "/model.safetensors"));
  result = RunProgram({"inspect", scratch.path(), "--json"});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_TRUE(*ParseOrDie(result.out).GetBool("runs"));
}

TEST(InspectTest, NamesATensorThatIsNotThere) {
  ScratchFolder scratch;
  Json config = *Json::ParseFile(Tiny() + "/config.json");
  config.Set("num_hidden_layers", *config.GetInt("num_hidden_layers") + 1);
  scratch.Write("config.json", config.Dump());
  scratch.Write("model.safetensors", *ReadFile(Tiny() + "/model.safetensors"));
  const ProgramResult result = RunProgram({"inspect", scratch.path(), "--json"});
  EXPECT_EQ(result.exit_code, 3) << result.err;
  const Json json = ParseOrDie(result.out);
  EXPECT_FALSE(*json.GetBool("runs"));
  EXPECT_NE(json.GetString("reason")->find("'model.layers.4."), std::string::npos)
      << *json.GetString("reason");
}

// Both read the same GGUF file: one its front, one all of it.
TEST(GgufTest, IsInspectedAndGeneratesText) {
  const std::string path = Source("testdata/gguf/qwen2_f16.gguf");
  const ProgramResult inspected = RunProgram({"inspect", path, "--json"});
  ASSERT_EQ(inspected.exit_code, 0) << inspected.err;
  const Json json = ParseOrDie(inspected.out);
  EXPECT_EQ(*json.GetString("family"), "qwen2");
  EXPECT_TRUE(*json.GetBool("tokenizer"));
  EXPECT_TRUE(*json.GetBool("runs"));
  EXPECT_EQ(*json.GetString("kind"), "GGUF file");
  EXPECT_GT(*json.Find("tensor_types")->GetInt("F16"), 0);
  EXPECT_GT(*json.Find("matrices_in_memory")->GetInt("f16"), 0);
  // Matrices stay f16; the file's norms are f32 and no matrices.
  EXPECT_LT(*json.GetInt("weight_bytes_in_memory"), *json.GetInt("weight_bytes"));
  EXPECT_GT(*json.GetInt("weight_bytes_in_memory"), *json.GetInt("weight_bytes") * 9 / 10);
  const ProgramResult generated = RunProgram({"generate", "-m", path, "-p", "hello", "-n", "8"});
  ASSERT_EQ(generated.exit_code, 0) << generated.err;
  EXPECT_FALSE(generated.out.empty());
}

TEST(GgufTest, ATruncatedFileIsNamedWithItsTensor) {
  ScratchFolder scratch;
  const std::string whole = *ReadFile(Source("testdata/gguf/qwen2_f16.gguf"));
  const std::string path =
      scratch.Write("cut.gguf", std::string_view(whole).substr(0, whole.size() / 2));
  const ProgramResult result = RunProgram({"generate", "-m", path, "-p", "hello"});
  EXPECT_NE(result.exit_code, 0);
  EXPECT_NE(result.err.find("cut.gguf: tensor 'blk."), std::string::npos) << result.err;
}

// --- bench

TEST(BenchTest, OneJsonLineAFigureFromAConfigAlone) {
  ScratchFolder scratch;
  scratch.Write("config.json", *ReadFile(Tiny() + "/config.json"));
  const ProgramResult result =
      RunProgram({"bench", "-m", scratch.path(), "--random-weights", "--pp", "8", "--tg", "2",
                  "--depth", "64", "--batch", "1,2", "-r", "1", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const std::vector<Json> figures = JsonLines(result.out);
  ASSERT_EQ(figures.size(), 3u);  // one prefill, two batches
  EXPECT_EQ(*figures[0].GetString("test"), "pp8");
  EXPECT_EQ(*figures[2].GetString("test"), "tg2");
  EXPECT_EQ(*figures[2].GetInt("batch"), 2);
  for (const Json& figure : figures) {
    EXPECT_EQ(*figure.GetInt("depth"), 64);
    for (const char* field : {"tokens_per_second", "read_gb_per_second"}) {
      EXPECT_GT(figure.GetDoubleOr(field, 0).value(), 0) << field;
    }
    EXPECT_GT(*figure.GetInt("kv_bytes"), 0);
    EXPECT_GT(*figure.GetInt("peak_rss_bytes"), 0);
    EXPECT_NE(figure.Find("gb_per_second"), nullptr);
  }
}

// --- replay

TEST(ReplayTest, EveryTraceHolds) {
  std::vector<std::string> args;
  for (const auto& entry : std::filesystem::directory_iterator(Source("testdata/traces"))) {
    if (entry.path().extension() == ".json") args.push_back(entry.path().string());
  }
  ASSERT_EQ(args.size(), 46u);
  std::sort(args.begin(), args.end());
  args.insert(args.begin(), {"replay", "--json"});
  const ProgramResult result = RunProgram(args);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const Json& line : JsonLines(result.out)) {
    EXPECT_EQ(*line.GetString("outcome"), "holds") << line.Dump();
  }
}

TEST(ReplayTest, AnOperationThatDoesNotExistIsNamedAsNotYet) {
  std::string text = *ReadFile(Source("testdata/traces/all_basic_0.json"));
  text.replace(text.find("\"append\""), 8, "\"polish\"");
  ScratchFolder scratch;
  const ProgramResult result = RunProgram({"replay", "--json", scratch.Write("later.json", text)});
  EXPECT_EQ(result.exit_code, 5) << result.err;
  const Json line = ParseOrDie(result.out);
  EXPECT_EQ(*line.GetString("outcome"), "not yet") << line.Dump();
  EXPECT_TRUE(Contains(*line.GetString("message"), "polish")) << line.Dump();
}

// Samples and sums have a leading dimension as all tensors of several layers.
TEST(ReplayTest, SamplesOfSeveralLayers) {
  const ScratchFolder scratch;
  const auto replayed = [&](const char* sum) {
    const std::string rows = R"({"dtype": "f32", "shape": [2, 2, 1, 1], "data": [1, 2, 3, 4]})";
    const std::string last = R"({"dtype": "f32", "shape": [2, 1, 1, 1], "data": [2, 4]})";
    const std::string text =
        R"({"format": "kvasir-trace/1", "name": "two", "spec": {"kv_heads": 1, "q_heads": 1,
            "head_dim": 1, "layers": 2, "scale": 1, "retention": {"kind": "all"},
            "keys": {"codec": "f32"}, "values": {"codec": "f32"}},
            "ops": [{"op": "new", "ids": ["a"], "expect": {}},
            {"op": "append", "seqs": {"a": {"n": 2, "keys": )" +
        rows + R"(, "values": )" + rows +
        R"(}}, "expect": {"seqs": {"a": {"position": 2, "rows": 2, "sample": {"rows": [1],
            "keys": )" +
        last + R"(, "values": )" + last + R"(}, "sum": {"keys": 10, "values": )" + sum + "}}}}}]}";
    return RunProgram({"replay", scratch.Write("two.json", text)});
  };
  EXPECT_EQ(replayed("10").exit_code, 0) << replayed("10").out;
  const ProgramResult wrong = replayed("11");
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_TRUE(Contains(wrong.out, "values sum to 10")) << wrong.out;
}

TEST(ReplayTest, AChangedNumberIsFound) {
  std::string text = *ReadFile(Source("testdata/traces/all_basic_0.json"));
  const size_t out = text.find("\"out\"");
  const size_t digit = text.find_first_of("123456789", text.find("\"data\"", out));
  ASSERT_NE(digit, std::string::npos);
  text[digit] = text[digit] == '9' ? '1' : static_cast<char>(text[digit] + 1);
  ScratchFolder scratch;
  const ProgramResult result = RunProgram({"replay", scratch.Write("tampered.json", text)});
  EXPECT_EQ(result.exit_code, 1) << result.out;
  EXPECT_TRUE(Contains(result.out, "FAILS")) << result.out;
}

}  // namespace
}  // namespace kvasir
