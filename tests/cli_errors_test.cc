// What the program says to bad input: the exit code of its kind, and a message that names the
// thing. Deliberately one table of command lines, and folders that are broken on purpose.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kvasir/base/file.h"
#include "kvasir/base/json.h"
#include "kvasir/formats/test_files.h"
#include "tests/support/program.h"

namespace kvasir {
namespace {

std::string Source(const std::string& path) { return std::string(KVASIR_SOURCE_DIR) + "/" + path; }
std::string Demo() { return Source("models/kvasir-demo"); }
std::string Tiny(const std::string& file = "") {
  return Source("testdata/models/public_llama_f32") + (file.empty() ? "" : "/" + file);
}

void ExpectError(const std::vector<std::string>& args, int exit_code, const std::string& named) {
  std::string line;
  for (const std::string& arg : args) line += arg + " ";
  const ProgramResult result = RunProgram(args);
  EXPECT_EQ(result.exit_code, exit_code) << line << "\n" << result.err;
  EXPECT_EQ(result.signal, 0) << line;
  EXPECT_NE(result.err.find(named), std::string::npos) << line << "\n" << result.err;
  EXPECT_EQ(result.out, "") << line;  // results only
}

TEST(CliErrorsTest, WrongFlags) {
  ExpectError({}, 2, "a verb is missing; there are generate, chat");
  ExpectError({"fly"}, 2, "there is no verb 'fly'; there are generate, chat");
  ExpectError({"generate", "--fly"}, 2, "kvasir generate: there is no option --fly");
  ExpectError({"generate", "--temprature", "1"}, 2, "did you mean --temp?");
  ExpectError({"generate", "--max-tokns=3"}, 2, "did you mean --max-tokens?");
  ExpectError({"generate", "-p", "a", "-p", "b"}, 2, "--prompt is given more than once");
  ExpectError({"generate", "-p", "a", "b"}, 2, "'b' is not expected here");
  ExpectError({"generate", "-p", "a", "--seed", "-1"}, 2, "'-1' is no whole number from 0");
  ExpectError({"generate", "-p", "a", "--seed", "18446744073709551616"}, 2, "no whole number");
  ExpectError({"generate", "-m", Demo()}, 2, "-p TEXT");
  ExpectError({"generate", "-m", Demo(), "-p", "x", "-n", "many"}, 2, "many");
  ExpectError({"generate", "-m", Demo(), "-p", "x", "-n", "-1"}, 2, "--max-tokens");
  ExpectError({"generate", "-m", Demo(), "-p", "x", "--threads", "-1"}, 2, "--threads");
  ExpectError({"generate", "-m", Demo(), "-p", "x", "--isa", "sse"}, 2, "sse");
  ExpectError({"generate", "-m", Demo(), "-p", "x", "--kv-attention", "bf8"}, 2,
              "use auto, int16, int8 or float");
  ExpectError({"generate", "-m", Demo(), "-p", "x", "--prefetch", "l3"}, 2,
              "use auto, l1, l2 or stream");
  ExpectError({"generate", "-m", Demo(), "-p", "x", "--kv-dtype", "q3"}, 2, "q3");
  ExpectError({"generate", "-m", Demo(), "-p", "x", "--weights", "q3"}, 2, "q3");
  ExpectError({"generate", "-m", Demo(), "-p", "x", "--top-p", "7"}, 2, "--top-p");
  ExpectError({"logits", "-m", Tiny(), "--out", "x.npy", "--tokens", "1 x"}, 2, "'x'");
  ExpectError({"bench", "-m", Tiny(), "--depth", "-1"}, 2, "--depth is -1");
  ExpectError({"serve", "-m", Demo(), "--port", "70000"}, 2, "--port");
  ExpectError({"serve", "-m", Demo(), "--port", "0", "--host", ""}, 2, "--host: is empty");
  ExpectError({"generate", "-m", "", "-p", "x"}, 2, "--model: is empty");
  ExpectError({"generate", "-m", Demo(), "-p", "x", "--temp", "nan"}, 2, "--temp");
  ExpectError({"generate", "-m", Demo(), "-p", "x", "--top-k", "-3"}, 2, "--top-k");
  ExpectError({"-t", "1", "generate"}, 2,
              "-t stands before the verb, whose options come behind it");
  ExpectError({"generate", "-p", "a", "--temp", "warm"}, 2, "--temp: 'warm' is no number");
  ExpectError({"bench", "-m", Tiny(), "--depth", "1,b"}, 2, "--depth: 'b' is no whole number");
  ExpectError({"bench", "-m", Tiny(), "--pp", "0", "--tg", "0"}, 2, "nothing to measure");
  ExpectError({"serve", "-m", Demo(), "--port", "http"}, 2, "--port: 'http' is no whole number\n");
  ExpectError({"serve", "-m", Demo(), "--max-body-bytes", "0"}, 2, "--max-body-bytes");
  ExpectError({"serve", "-m", Demo(), "--max-body-bytes", "4x"}, 2, "--max-body-bytes");
  ExpectError({"chat", "-m", Demo(), "-n", "0"}, 2, "--max-tokens");
}

// A download that was cut short: inspect and convert say what loading would say.
TEST(CliErrorsTest, IncompleteModelsAreNeitherFineNorConverted) {
  ScratchFolder scratch;
  const std::string folder = scratch.path();
  const std::string out = scratch.File("out");
  scratch.Write("config.json", *ReadFile(Tiny("config.json")));
  scratch.Write("model.safetensors.index.json",
                R"({"weight_map": {"model.norm.weight": "model-00001-of-00001.safetensors"}})");
  const ProgramResult inspected = RunProgram({"inspect", folder});
  EXPECT_EQ(inspected.exit_code, 3);
  EXPECT_NE(inspected.out.find("model-00001-of-00001.safetensors: cannot open"), std::string::npos)
      << inspected.out;
  ExpectError({"convert", "-m", folder, "-o", out}, 3, "model-00001-of-00001.safetensors");
  scratch.Write("model.safetensors.index.json", R"({"weight_map": {}})");
  EXPECT_EQ(RunProgram({"inspect", folder}).exit_code, 3);
  ExpectError({"convert", "-m", folder, "-o", out}, 3, "embed_tokens.weight");
  ExpectError({"convert", "-m", folder, "-o", out + ".gguf", "--type", "f16"}, 3,
              "embed_tokens.weight");
  // Without a word about it a head may be the embedding; the config says it is not.
  Json config = *Json::ParseFile(Tiny("config.json"));
  for (const bool says_so : {true, false}) {
    ScratchFolder headless;
    Json own = Json::Object();
    for (const auto& [key, value] : config.as_object()) {
      if (says_so || key != "tie_word_embeddings") own.Set(key, value);
    }
    headless.Write("config.json", own.Dump());
    std::string weights = *ReadFile(Tiny("model.safetensors"));
    const std::string name = "lm_head.weight";
    weights.replace(weights.find(name), name.size(), "no_head.weight");
    headless.Write("model.safetensors", weights);
    const ProgramResult loaded =
        RunProgram({"logits", "-m", headless.path(), "--tokens", "1", "--out", headless.File("x")});
    EXPECT_EQ(loaded.exit_code, says_so ? 3 : 0) << loaded.err;
    EXPECT_EQ(loaded.err.find("'lm_head.weight' is missing") != std::string::npos, says_so);
  }
}

TEST(CliErrorsTest, InspectReadsTokenizerAndTemplate) {
  ScratchFolder scratch;
  for (const char* file : {"config.json", "model.safetensors"}) {
    scratch.Write(file, *ReadFile(Demo() + "/" + file));
  }
  EXPECT_EQ(RunProgram({"inspect", scratch.path()}).exit_code, 0);
  scratch.Write("tokenizer.json", "{");
  EXPECT_EQ(RunProgram({"inspect", scratch.path()}).exit_code, 4);
  scratch.Write("tokenizer.json", *ReadFile(Demo() + "/tokenizer.json"));
  scratch.Write("chat_template.jinja", "{{ {% ");
  EXPECT_EQ(RunProgram({"inspect", scratch.path()}).exit_code, 4);
}

// The folder has no weights, which would be missed first.
TEST(CliErrorsTest, WhatTheConfigTellsIsSaidBeforeWeightsAreRead) {
  ScratchFolder scratch;
  scratch.Write("config.json", *ReadFile(Tiny("config.json")));
  const std::string folder = scratch.path();
  ExpectError({"generate", "-m", folder, "-p", "x", "--kv-bits", "4", "--kv-dense-layers", "99"}, 2,
              "layer 99");
  ExpectError({"generate", "-m", folder, "-p", "x", "--grammar-file", scratch.File("none.gbnf")}, 3,
              "none.gbnf");
  ExpectError({"serve", "-m", folder, "--log-level", "loud"}, 2, "'loud'");
  ExpectError({"serve", "-m", folder, "--max-queue", "-1"}, 2, "--max-queue");
  ExpectError({"serve", "-m", folder, "--max-connections", "0"}, 2, "--max-connections");
  ExpectError({"serve", "-m", folder, "--max-header-bytes", "5"}, 2, "--max-header-bytes");
  ExpectError({"serve", "-m", folder, "--cors-origin", "app.example"}, 2, "'app.example'");
  ExpectError({"serve", "-m", folder, "--allowed-host", "http://box"}, 2, "'http://box'");
  ExpectError({"serve", "-m", folder, "--swap-bytes", "5G"}, 2, "--swap-dir");
  ExpectError({"serve", "-m", folder, "--cache-dir-bytes", "5G"}, 2, "--cache-dir");
  ExpectError({"serve", "-m", folder, "--cache-dir", scratch.File("none")}, 3, "stored prefixes");
  ExpectError({"serve", "-m", folder, "--prompt-cache-bytes", "5G"}, 2, "--prompt-cache");
  ExpectError({"serve", "-m", folder, "--slot-save-path", scratch.File("none")}, 3, "slots");
  ExpectError({"generate", "-m", folder, "-p", "x", "--draft-model", scratch.File("none")}, 3,
              "no such draft model");
  for (const std::vector<std::string>& draft :
       {std::vector<std::string>{},
        {"--draft-model", KVASIR_SOURCE_DIR "/testdata/assistants/gemma4_shared_ordered"}}) {
    std::vector<std::string> args = {"generate", "-m", folder, "-p", "x", "--draft-cache-bytes",
                                     "5M"};
    args.insert(args.end(), draft.begin(), draft.end());
    ExpectError(args, 2, "--draft-cache-bytes means nothing");
  }
  ExpectError({"generate", "-m", folder, "-p", "x", "--draft-max", "4"}, 2,
              "--draft-max means nothing");
  ExpectError({"generate", "-m", folder, "-p", "x"}, 1, "no tokenizer");
  ExpectError({"chat", "-m", folder}, 1, "no tokenizer");
  ExpectError({"serve", "-m", folder, "--port", "0"}, 1, "no tokenizer");
  scratch.Write("tokenizer.json", *ReadFile(Demo() + "/tokenizer.json"));
  ExpectError({"chat", "-m", folder}, 1, "no chat template");
  ExpectError({"generate", "-m", folder, "-p", "x", "--chat"}, 1, "no chat template");
  ExpectError({"generate", "-m", folder, "-p", "x"}, 3, "model.safetensors");
}

TEST(CliErrorsTest, WhatIsOfAModelMeansNothingOfACache) {
  ScratchFolder scratch;
  const std::string cache = scratch.File("cache.kv");
  const ProgramResult saved =
      RunProgram({"generate", "-m", Demo(), "-p", "x", "-n", "1", "--save-cache", cache});
  ASSERT_EQ(saved.exit_code, 0) << saved.err;
  ExpectError({"inspect", cache, "--tensors"}, 2, "are for models");
  ExpectError({"inspect", cache, "--context", "5"}, 2, "are for models");
}

TEST(CliErrorsTest, MissingThings) {
  ScratchFolder scratch;
  ExpectError({"generate", "-m", scratch.path(), "-p", "x"}, 3, "config.json: there is none");
  ExpectError({"generate", "-m", scratch.File("none"), "-p", "x"}, 3, "no such folder or file");
  const std::string gguf = scratch.Write("model.gguf", "GGUF");
  ExpectError({"generate", "-m", scratch.path(), "-p", "x"}, 3, gguf + " is; give that file");
  ExpectError({"generate", "-m", Demo(), "-f", scratch.File("none.txt")}, 3, "none.txt");
  scratch.Write("config.json", *ReadFile(Tiny("config.json")));
  ExpectError({"logits", "-m", scratch.path(), "--tokens", "1", "--out", scratch.File("x.npy")}, 3,
              "model.safetensors");
  ExpectError({"generate", "-m", Tiny(), "-p", "x"}, 1, "tokenizer.json");
}

// A folder with the tiny model's config and these weights.
void ExpectWeightsError(const std::string& weights, int exit_code, const std::string& named) {
  ScratchFolder scratch;
  scratch.Write("config.json", *ReadFile(Tiny("config.json")));
  scratch.Write("model.safetensors", weights);
  ExpectError({"logits", "-m", scratch.path(), "--tokens", "1", "--out", scratch.File("x.npy")},
              exit_code, named);
}

TEST(CliErrorsTest, CorruptWeights) {
  const std::string whole = *ReadFile(Tiny("model.safetensors"));
  ExpectWeightsError("", 4, "model.safetensors");
  ExpectWeightsError(whole.substr(0, 1000), 4, "model.safetensors");
  ExpectWeightsError(whole.substr(0, whole.size() - 1), 4, "model.safetensors");
  ExpectWeightsError(std::string(8, '\xff') + whole.substr(8), 4, "model.safetensors");
  // One tensor misspelt: the error names the one that is missing now.
  std::string misspelt = whole;
  const std::string name = "model.norm.weight";
  misspelt.replace(misspelt.find(name), name.size(), "model.norm.weighs");
  ExpectWeightsError(misspelt, 3, name);
}

// A folder with the tiny model's weights and a config in which `from` is replaced.
void ExpectConfigError(const std::string& from, const std::string& to, int exit_code,
                       const std::string& named) {
  std::string config = *ReadFile(Tiny("config.json"));
  const size_t at = config.find(from);
  ASSERT_NE(at, std::string::npos) << from;
  config.replace(at, from.size(), to);
  ScratchFolder scratch;
  scratch.Write("config.json", config);
  scratch.Write("model.safetensors", *ReadFile(Tiny("model.safetensors")));
  ExpectError({"logits", "-m", scratch.path(), "--tokens", "1", "--out", scratch.File("x.npy")},
              exit_code, named);
}

TEST(CliErrorsTest, ConfigsThatCannotBe) {
  ExpectConfigError("LlamaForCausalLM", "WhaleForCausalLM", 5, "WhaleForCausalLM");
  ExpectConfigError("\"hidden_size\": 64", "\"hidden_size\": 1000000000000", 4, "hidden_size");
  ExpectConfigError("\"hidden_size\": 64", "\"hidden_size\": \"wide\"", 4, "hidden_size");
  ExpectConfigError("\"num_hidden_layers\": 4", "\"num_hidden_layers\": -4", 4,
                    "num_hidden_layers");
  ExpectConfigError("\"intermediate_size\": 96", "\"intermediate_size\": 97", 4, "mlp");
  ExpectConfigError("{", "", 4, "config.json");
}

TEST(CliErrorsTest, AConfigTooLargeForThisMachineIsNotAllocated) {
  ScratchFolder scratch;
  // Each size is legal; together they ask for more memory than any machine has.
  scratch.Write("config.json", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "hidden_size": 65536, "intermediate_size": 262144, "num_hidden_layers": 500, "head_dim": 128,
    "num_attention_heads": 512, "num_key_value_heads": 512, "vocab_size": 1000000,
    "rms_norm_eps": 1e-5, "max_position_embeddings": 4096})");
  ExpectError({"bench", "-m", scratch.path(), "--random-weights", "--pp", "1", "--tg", "0"}, 6,
              "memory");
}

TEST(CliErrorsTest, APoolTooSmallForOneBlock) {
  ScratchFolder scratch;
  // 64 positions of 64 heads of 256 are 8 MiB of f32 keys and values.
  scratch.Write("config.json", R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama",
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 1, "head_dim": 256,
    "num_attention_heads": 64, "num_key_value_heads": 64, "vocab_size": 256,
    "rms_norm_eps": 1e-5, "max_position_embeddings": 4096})");
  ExpectError({"logits", "-m", scratch.path(), "--random-weights", "--kv-dtype", "f32",
               "--cache-bytes", "1M", "--tokens", "1", "--out", scratch.File("x.npy")},
              6, "budget");
}

TEST(CliErrorsTest, PromptsAndTokensOutsideTheModel) {
  ScratchFolder scratch;
  std::string text;
  for (int i = 0; i < 6000; ++i) text += "word ";
  const std::string prompt = scratch.Write("prompt.txt", text);
  ExpectError({"generate", "-m", Demo(), "-f", prompt}, 2, "context is 4096");
  ExpectError({"logits", "-m", Tiny(), "--tokens", "1 999", "--out", scratch.File("x.npy")}, 2,
              "999");
  // Nothing half-written stays behind.
  EXPECT_EQ(scratch.FileCount(), 1u);
}

TEST(CliErrorsTest, TracesThatAreNone) {
  ScratchFolder scratch;
  const std::string head = R"({"format": "kvasir-trace/1", "spec": {"kv_heads": 1, "q_heads": 1,
    "head_dim": 4, "scale": 1, "keys": {"codec": "f32"}, "values": {"codec": "f32"},
    "retention": {"kind": "all"}}, "ops": [)";
  const std::string tail = R"(, "expect": {}}]})";
  for (const std::string& text : {std::string(), std::string("[]"), std::string("{\"format\": 1}"),
                                  head + R"({"op": "filter", "keep": [])" + tail,
                                  head + R"({"op": "merge", "ids": [])" + tail,
                                  head + R"({"op": "fork", "from": "a", "to": "b")" + tail}) {
    const std::string file = scratch.Write("trace.json", text);
    const ProgramResult result = RunProgram({"replay", file});
    EXPECT_EQ(result.exit_code, text.empty() ? 4 : 1) << text;
    EXPECT_NE(result.out.find("FAILS"), std::string::npos) << result.out;
  }
}

}  // namespace
}  // namespace kvasir
