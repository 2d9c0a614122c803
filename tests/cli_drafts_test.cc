// Gemma 4's assistants and models' own layers in generate and chat: the answers of plain decoding,
// and a report of what was drafted. Deliberately not what drafts are: generator_hidden_test.cc,
// assistant_test.cc and mtp_head_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/formats/test_files.h"
#include "tests/support/program.h"
#include "tests/support/scratch_model.h"

namespace kvasir {
namespace {

namespace fs = std::filesystem;

const std::string kTestdata = KVASIR_SOURCE_DIR "/testdata/";
const std::string kTarget = kTestdata + "models/transformers_gemma4_shared_bf16";
const std::string kAssistant = kTestdata + "assistants/gemma4_shared_ordered";

Json Generate(const std::string& model, std::vector<std::string> more) {
  std::vector<std::string> args = {
      "generate",     "-m", model,
      "--json",       "-n", "64",
      "--ignore-eos", "-p", "Once there was a small house near the river."};
  args.insert(args.end(), more.begin(), more.end());
  const ProgramResult result = RunProgram(args);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  auto json = Json::Parse(result.out);
  KVASIR_CHECK(json.ok());
  return *std::move(json);
}

int64_t Drafted(const Json& answer) {
  return answer.Find("stats")->GetInt("drafted_tokens").value();
}

class AssistantCliTest : public testing::Test {
 protected:
  AssistantCliTest() : model_(scratch_.File("model")) {
    fs::copy(kTarget, model_);
    EXPECT_TRUE(WriteScratchTokenizer(model_).ok());
  }

  const ScratchFolder scratch_;
  const std::string model_;
};

TEST_F(AssistantCliTest, GenerateSaysWhatItSaysWithoutDrafts) {
  for (const std::vector<std::string>& sampling :
       {std::vector<std::string>{"--temp", "0"}, {"--temp", "1.2", "--seed", "7"}}) {
    const auto with = [&](std::vector<std::string> more) {
      more.insert(more.end(), sampling.begin(), sampling.end());
      return Generate(model_, std::move(more));
    };
    const Json plain = with({});
    EXPECT_EQ(Drafted(plain), 0);
    for (const char* kind : {"mtp", "model"}) {
      const Json drafted = with({"--draft-model", kAssistant, "--draft-kind", kind});
      EXPECT_EQ(*drafted.Find("tokens"), *plain.Find("tokens")) << kind;
      EXPECT_GT(Drafted(drafted), 0) << kind;
    }
  }
}

TEST_F(AssistantCliTest, PackagesBringTheirs) {
  const std::string package = scratch_.File("package");
  const ProgramResult created =
      RunProgram({"create", "-o", package, "--from", model_, "--draft", kAssistant});
  ASSERT_EQ(created.exit_code, 0) << created.err;
  const Json drafted = Generate(package, {"--temp", "0"});
  const Json plain = Generate(package, {"--temp", "0", "--draft-kind", "none"});
  EXPECT_EQ(*drafted.Find("tokens"), *plain.Find("tokens"));
  EXPECT_GT(Drafted(drafted), 0);
  EXPECT_EQ(Drafted(plain), 0);
}

TEST_F(AssistantCliTest, ChatSaysTheSameAndReportsDrafts) {
  const auto said = [&](std::vector<std::string> more, bool drafts) {
    std::vector<std::string> args = {"chat",   "-m",  model_,   "-n", "64",
                                     "--temp", "0.9", "--seed", "3"};
    args.insert(args.end(), more.begin(), more.end());
    Program program(args);
    program.Write("Hello.\n/stats\nWhat was that?\n/stats\n/undo\n/fork\nOnce more.\n/quit\n");
    const ProgramResult result = program.Finish();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_EQ(result.err.find("drafts right") != std::string::npos, drafts) << result.err;
    return result.out;
  };
  EXPECT_EQ(said({"--draft-model", kAssistant}, true), said({}, false));
}

// Shapes alone: config.json of both, weights made up.
TEST_F(AssistantCliTest, WeightsOfBothMayBeMadeUp) {
  fs::remove(model_ + "/model.safetensors");
  fs::create_directory(scratch_.File("assistant"));
  fs::copy(kAssistant + "/config.json", scratch_.File("assistant/config.json"));
  const Json plain = Generate(model_, {"--random-weights", "--temp", "0"});
  const Json drafted = Generate(
      model_, {"--random-weights", "--temp", "0", "--draft-model", scratch_.File("assistant")});
  EXPECT_EQ(*drafted.Find("tokens"), *plain.Find("tokens"));
  EXPECT_GT(Drafted(drafted), 0);
}

// In chat, where turns are undone and conversations forked, and in a converted folder as well.
TEST(OwnLayerCliTest, AModelsOwnLayerDrafts) {
  const ScratchFolder scratch;
  const std::string model = scratch.File("model");
  fs::copy(kTestdata + "models/transformers_qwen3_5_wrapped_bf16", model);
  ASSERT_TRUE(WriteScratchTokenizer(model).ok());
  const std::string int8 = scratch.File("int8");
  const ProgramResult converted =
      RunProgram({"convert", "-m", model, "-o", int8, "--type", "int8"});
  ASSERT_EQ(converted.exit_code, 0) << converted.err;
  for (const std::string& folder : {model, int8}) {
    const std::vector<std::string> mtp = {"--draft-kind", "mtp"};
    const Json plain = Generate(folder, {"--temp", "0"});
    const Json drafted = Generate(folder, {"--temp", "0", "--draft-kind", "mtp"});
    EXPECT_EQ(*drafted.Find("tokens"), *plain.Find("tokens"));
    EXPECT_GT(Drafted(drafted), 0);
    const auto said = [&](const std::vector<std::string>& more) {
      std::vector<std::string> args = {"chat",   "-m",  folder,   "-n", "40",
                                       "--temp", "0.9", "--seed", "3"};
      args.insert(args.end(), more.begin(), more.end());
      Program program(args);
      program.Write("Hello.\nWhat was that?\n/undo\n/fork\nOnce more.\n/quit\n");
      const ProgramResult result = program.Finish();
      EXPECT_EQ(result.exit_code, 0) << result.err;
      return result.out;
    };
    EXPECT_EQ(said(mtp), said({}));
  }
  const ProgramResult inspected = RunProgram({"inspect", int8});
  EXPECT_NE(inspected.out.find("--draft-kind mtp"), std::string::npos) << inspected.out;
  const ProgramResult none = RunProgram({"generate", "-m", kTestdata + "gguf/qwen35_bf16.gguf",
                                         "-p", "Hello", "--draft-kind", "mtp"});
  EXPECT_NE(none.exit_code, 0);
  EXPECT_NE(none.err.find("layer that drafts"), std::string::npos) << none.err;
}

// It guesses tokens and never chats.
TEST(DraftModelCliTest, ADraftModelNeedsNoChatTemplate) {
  const std::string models = KVASIR_SOURCE_DIR "/models/";
  const ScratchFolder draft;
  for (const char* kept : {"config.json", "tokenizer.json", "model.safetensors"}) {
    fs::copy_file(models + "kvasir-demo-draft/" + kept, draft.File(kept));
  }
  const Json drafted =
      Generate(models + "kvasir-demo", {"--chat", "--temp", "0", "--draft-model", draft.path()});
  EXPECT_GT(Drafted(drafted), 0);
  EXPECT_EQ(*drafted.Find("text"),
            *Generate(models + "kvasir-demo", {"--chat", "--temp", "0"}).Find("text"));
}

TEST_F(AssistantCliTest, AnotherModelsAssistantIsRefused) {
  const ProgramResult result = RunProgram({"generate", "-m", model_, "-p", "x", "--draft-model",
                                           kTestdata + "assistants/gemma4_one_projection_plain"});
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_NE(result.err.find("the assistant is for another model"), std::string::npos) << result.err;
}

// A published pair with fewer and narrower layers and fewer tokens; what decides which code runs is
// as published: heads, window, per-layer embeddings, shared keys, the kind of head.
struct CutPair {
  const char* target;  // under testdata/shapes, and with "-assistant" behind it
  int layers;          // of the target; whole patterns of window and full layers
  int shared_layers;
};

class CutPairTest : public testing::TestWithParam<CutPair> {
 protected:
  static constexpr int64_t kHidden = 192;
  static constexpr int64_t kVocabulary = 1024;

  CutPairTest() {
    const CutPair& pair = GetParam();
    Json target = Published(pair.target);
    Json text = *target.Find("text_config");
    Json::Array kinds = text.Find("layer_types")->as_array();
    kinds.resize(static_cast<size_t>(pair.layers));
    text.Set("layer_types", std::move(kinds));
    text.Set("num_hidden_layers", pair.layers);
    text.Set("num_kv_shared_layers", pair.shared_layers);
    Cut(&text);
    target.Set("text_config", std::move(text));
    Write("target", target);
    scratch_.Write("target/tokenizer.json", BytesTokenizer());
    Json assistant = Published(std::string(pair.target) + "-assistant");
    Json own = *assistant.Find("text_config");
    Cut(&own);
    assistant.Set("text_config", std::move(own));
    assistant.Set("backbone_hidden_size", kHidden);
    assistant.Set("num_centroids", 128);
    assistant.Set("centroid_intermediate_top_k", 16);
    Write("assistant", assistant);
  }
  static std::string Shape(const std::string& name) { return kTestdata + "shapes/" + name; }
  static Json Published(const std::string& name) {
    auto json = Json::ParseFile(Shape(name) + "/config.json");
    KVASIR_CHECK(json.ok());
    return *std::move(json);
  }
  static void Cut(Json* text) {
    text->Set("hidden_size", kHidden);
    text->Set("intermediate_size", 2 * kHidden);
    text->Set("vocab_size", kVocabulary);
    if (text->Find("vocab_size_per_layer_input")->as_int() > 0) {
      text->Set("vocab_size_per_layer_input", kVocabulary);
    }
  }
  void Write(const std::string& name, const Json& config) {
    fs::create_directory(scratch_.File(name));
    scratch_.Write(name + "/config.json", config.Dump());
  }

  const ScratchFolder scratch_;
};

TEST_P(CutPairTest, IsInspectedAndDrafts) {
  const std::string target = scratch_.File("target");
  for (const std::string& folder : {Shape(GetParam().target), target}) {
    const ProgramResult shown = RunProgram({"inspect", folder, "--json"});
    EXPECT_EQ(shown.exit_code, 0) << shown.err;
    EXPECT_NE(shown.out.find("\"runs\":true"), std::string::npos) << shown.out;
  }
  const ProgramResult shown = RunProgram({"inspect", scratch_.File("assistant")});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_NE(shown.out.find("assistant: drafts for a model"), std::string::npos) << shown.out;
  const auto generate = [&](std::vector<std::string> more) {
    for (const char* arg : {"--random-weights", "--weights", "q8", "--cache-bytes", "256M"}) {
      more.emplace_back(arg);
    }
    return Generate(target, std::move(more));
  };
  for (const std::vector<std::string>& how :
       {std::vector<std::string>{"--temp", "0"},
        {"--temp", "1", "--seed", "4", "--kv-bits", "4", "--kv-quant-scheme", "turboquant",
         "--kv-dense-layers", "none"}}) {
    std::vector<std::string> drafted_so = how;
    drafted_so.insert(drafted_so.end(), {"--draft-model", scratch_.File("assistant")});
    const Json plain = generate(how);
    const Json drafted = generate(drafted_so);
    EXPECT_EQ(*drafted.Find("tokens"), *plain.Find("tokens"));
    EXPECT_GT(Drafted(drafted), 0);
    EXPECT_EQ(Drafted(plain), 0);
  }
}

INSTANTIATE_TEST_SUITE_P(Published, CutPairTest,
                         testing::Values(CutPair{"gemma-4-e2b", 10, 5},
                                         CutPair{"gemma-4-31b", 6, 0}),
                         [](const auto& info) {
                           std::string name = info.param.target;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace kvasir
