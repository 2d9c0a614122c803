// Models whose weights were mapped give the bits of those that packed them, whatever happened to
// the file meanwhile.
#include "kvasir/model/packed_weights_cache.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "kvasir/formats/test_files.h"
#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

namespace fs = std::filesystem;

struct Case {
  std::string folder;  // as TinyModelOptions
  std::optional<WeightFormat> format;
};

bool Contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

class PackedWeightsTest : public testing::Test {
 protected:
  // Logits of a model that was loaded with packed weights in `packed_`; log_ says what happened.
  std::vector<float> Logits(const Case& which) {
    log_.clear();
    const auto backend = ValueOrDie(MakeCpuBackend({.threads = 2}));
    LoadOptions options = {.weight_format = which.format, .packed_weights = packed_, .log = {}};
    options.log = [this](LogLevel level, std::string_view line) {
      log_ += (level == LogLevel::kWarning ? "warning: " : "") + std::string(line) + "\n";
    };
    const auto loaded = ValueOrDie(LoadModel(TinyModel::Folder(which.folder), *backend, options));
    return Feed(*loaded.model);
  }
  // The same without.
  static std::vector<float> Plain(const Case& which) {
    const auto backend = ValueOrDie(MakeCpuBackend({.threads = 2}));
    const LoadOptions options = {.weight_format = which.format, .packed_weights = {}, .log = {}};
    return Feed(*ValueOrDie(LoadModel(TinyModel::Folder(which.folder), *backend, options)).model);
  }
  static std::vector<float> Feed(const Model& model) {
    KvPool pool({.budget_bytes = size_t{64} << 20});
    const auto spec = std::make_shared<const KvCacheSpec>(model.CacheSpec({}));
    KvSequence sequence = ValueOrDie(KvSequence::Create(&pool, spec));
    Workspace workspace;
    const std::vector<Token> tokens = RandomTokens(20, model.vocab_size(), 3);
    const SequenceRun run = {&sequence, tokens, 20};
    const ConstFloatRows rows = ValueOrDie(model.Forward(std::span(&run, 1), workspace));
    std::vector<float> logits;
    for (int64_t row = 0; row < rows.rows; ++row) {
      logits.insert(logits.end(), rows.row(row), rows.row(row) + rows.cols);
    }
    return logits;
  }

  std::vector<std::string> Files() const {
    std::vector<std::string> files;
    for (const auto& entry : fs::directory_iterator(packed_)) {
      files.push_back(entry.path().string());
    }
    return files;
  }
  bool Mapped() const { return Contains(log_, "packed weights: mapped "); }
  bool Wrote() const { return Contains(log_, "packed weights: wrote "); }
  bool Warned() const { return Contains(log_, "warning: packed weights: "); }

  ScratchFolder scratch_;
  std::string packed_ = scratch_.File("made/when needed");
  std::string log_;
  const Case some_ = {"public_llama_f32", WeightFormat::kQ8};
};

class PackedWeightsBitsTest : public PackedWeightsTest, public testing::WithParamInterface<Case> {};

TEST_P(PackedWeightsBitsTest, MappedIsAsPacked) {
  const std::vector<float> wanted = Plain(GetParam());
  EXPECT_EQ(Logits(GetParam()), wanted);
  EXPECT_TRUE(Wrote() && !Mapped() && !Warned()) << log_;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(Logits(GetParam()), wanted);
    EXPECT_TRUE(Mapped() && !Wrote() && !Warned()) << log_;
    EXPECT_EQ(Files().size(), 1u);
  }
}

std::vector<Case> AllCases() {
  std::vector<Case> cases;
  for (const char* folder : {"mlx_qwen3_q4g32_bf16",
                             "mlx_qwen3_moe_q4g32_bf16",
                             "public_gemma3_f32",
                             "public_llama_f32",
                             "public_qwen3_f32",
                             "transformers_gemma2_bf16",
                             "transformers_gemma3_sharded_bf16",
                             "transformers_gemma4_experts_bf16",
                             "transformers_gemma4_one_projection_bf16",
                             "transformers_gemma4_shared_bf16",
                             "transformers_llama3_rope_bf16",
                             "transformers_qwen2_f16",
                             "transformers_qwen3_moe_bf16",
                             "transformers_gpt_oss_bf16",
                             "transformers_qwen3_5_bf16",
                             "transformers_qwen3_next_bf16",
                             "mlx_qwen3_5_moe_q4g32_bf16",
                             "transformers_gpt_oss_mxfp4",
                             "mlx_gpt_oss_mxfp4",
                             "testdata/gguf/gpt_oss_mxfp4.gguf",
                             "testdata/gguf/qwen3_q8_0.gguf",
                             "testdata/gguf/gemma3_bf16-00001-of-00002.gguf",
                             "testdata/gguf/gemma4_experts_bf16.gguf",
                             "testdata/gguf/llama3_rope_bf16.gguf",
                             "testdata/gguf/qwen3moe_bf16.gguf"}) {
    cases.push_back({folder, std::nullopt});
  }
  for (const char* folder : {"mlx_qwen3_q4g32_bf16", "transformers_qwen3_moe_bf16"}) {
    for (const WeightFormat format :
         {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kBf16, WeightFormat::kBf16Dot,
          WeightFormat::kQ8, WeightFormat::kQ4}) {
      cases.push_back({folder, format});
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(
    Models, PackedWeightsBitsTest, testing::ValuesIn(AllCases()), [](const auto& info) {
      std::string name = fs::path(info.param.folder).stem().string();
      for (char& c : name) {
        if (c == '-') c = '_';
      }
      if (info.param.folder.ends_with(".gguf")) name += "_gguf";
      return name + "_" +
             (info.param.format ? std::string(WeightFormatName(*info.param.format)) : "stored");
    });

TEST_F(PackedWeightsTest, FormatsHaveFilesOfTheirOwn) {
  const Case other = {some_.folder, WeightFormat::kQ4};
  Logits(some_);
  Logits(other);
  EXPECT_TRUE(Wrote()) << log_;
  EXPECT_EQ(Files().size(), 2u);
  EXPECT_EQ(Logits(some_), Plain(some_));
  EXPECT_TRUE(Mapped()) << log_;
  EXPECT_EQ(Logits(other), Plain(other));
  EXPECT_TRUE(Mapped()) << log_;
}

// Everything that can be seen to be wrong with a file: it is said, and the file replaced.
TEST_F(PackedWeightsTest, FilesThatDoNotFitAreReplaced) {
  const std::vector<float> wanted = Plain(some_);
  Logits(some_);
  const std::string path = Files().at(0);
  const std::string whole = *ReadFile(path);
  std::vector<std::string> bad = {"",
                                  "x",
                                  whole.substr(0, 63),
                                  whole.substr(0, 64),
                                  whole.substr(0, whole.size() / 2),
                                  whole.substr(0, whole.size() - 1),
                                  whole + "x"};
  for (const size_t at : {size_t{0}, size_t{8}, size_t{12}, size_t{20}, size_t{56}}) {
    bad.push_back(whole);
    bad.back()[at] ^= 1;
  }
  bad.push_back(whole);
  bad.back()[whole.size() - 9] ^= 1;  // the index
  for (size_t i = 0; i < bad.size(); ++i) {
    ASSERT_TRUE(WriteFileAtomic(path, bad[i]).ok());
    ASSERT_EQ(Logits(some_), wanted) << i;
    ASSERT_TRUE(Warned() && Wrote() && Contains(log_, path)) << i << log_;
    ASSERT_EQ(*ReadFile(path), whole) << i;
  }
  ASSERT_EQ(Logits(some_), wanted);
  EXPECT_TRUE(Mapped() && !Warned()) << log_;
}

// A file of the right fingerprint that lacks what the model asks for, or has another shape of it.
TEST_F(PackedWeightsTest, FilesThatLackAMatrixAreReplaced) {
  const std::vector<float> wanted = Plain(some_);
  Logits(some_);
  const std::string path = Files().at(0);
  const std::string whole = *ReadFile(path);
  uint64_t index = 0;
  uint32_t length = 0;
  std::memcpy(&index, whole.data() + 24, sizeof(index));
  std::memcpy(&length, whole.data() + index, sizeof(length));
  const std::string fingerprint = whole.substr(index + sizeof(length), length);
  for (const char* key : {"nothing", "layers.0.self_attn.q_proj.weight q8"}) {
    auto writer = ValueOrDie(PackedWeightsWriter::Create(path, fingerprint));
    OrDie(writer.Append(key, ValueOrDie(PackedMatrix::Allocate(16, 32, WeightFormat::kQ8))));
    OrDie(writer.Commit());
    EXPECT_EQ(Logits(some_), wanted);
    EXPECT_TRUE(Warned() && Wrote() && !Mapped()) << log_;
    EXPECT_EQ(*ReadFile(path), whole);
  }
}

TEST_F(PackedWeightsTest, ChangedModelsArePackedAnew) {
  const std::string folder = scratch_.File("model");
  fs::copy(TinyModel::Folder(some_.folder), folder);
  // A path from the root of the repository: TinyModel::Folder puts that before it.
  const Case copy = {fs::relative(folder, KVASIR_SOURCE_DIR).string(), some_.format};
  ASSERT_TRUE(Contains(copy.folder, "/")) << copy.folder;
  Logits(copy);
  for (const char* changed : {"/model.safetensors", "/config.json"}) {
    fs::last_write_time(folder + changed,
                        fs::last_write_time(folder + changed) + std::chrono::seconds(3));
    EXPECT_EQ(Logits(copy), Plain(some_));
    EXPECT_TRUE(Wrote() && !Mapped() && !Warned()) << log_;
  }
  EXPECT_EQ(Files().size(), 3u);
}

// One model under another name of its folder is that model.
TEST_F(PackedWeightsTest, PathsAreComparedAsWhatTheyLeadTo) {
  Logits(some_);
  Logits({"testdata/../testdata/models/public_llama_f32/", some_.format});
  EXPECT_TRUE(Mapped()) << log_;
}

// Who looks into the folder sees which model a file is of.
TEST_F(PackedWeightsTest, FilesAreNamedAfterTheirModel) {
  const std::string long_name(230, 'n');
  for (const auto& [name, shown] : {std::pair<std::string, std::string>{"Qwen3-0.6B", "Qwen3-0.6B"},
                                    {"Qwen3-0.6B/", "Qwen3-0.6B"},
                                    {"Qwen3-0.6B.gguf", "Qwen3-0.6B"},
                                    {long_name, long_name.substr(0, 128)}}) {
    packed_ = scratch_.File("packed");
    const FileVersion config = ValueOrDie(FileVersion::Of(
        std::string(KVASIR_SOURCE_DIR) + "/testdata/models/public_llama_f32/config.json"));
    PackedWeightsCache(packed_, {scratch_.File(name), {config}, WeightFormat::kQ8}, {}).Finish();
    ASSERT_EQ(Files().size(), 1u);
    EXPECT_TRUE(Contains(Files().at(0), "/" + shown + "-q8-")) << Files().at(0);
    fs::remove_all(packed_);
  }
}

// A model that was replaced after it was opened: what was read has the name of no file that is.
TEST_F(PackedWeightsTest, NothingIsKeptOfAModelThatWasReplaced) {
  packed_ = scratch_.File("packed");
  const std::string file = scratch_.Write("model.safetensors", "old");
  const MappedFile opened = ValueOrDie(MappedFile::Open(file));
  ASSERT_TRUE(WriteFileAtomic(file, "another").ok());
  PackedWeightsCache(packed_, {scratch_.File("model"), {opened.version()}, WeightFormat::kQ8}, {})
      .Finish();
  EXPECT_TRUE(Files().empty());
}

TEST_F(PackedWeightsTest, FoldersThatCannotBeWrittenAreNoReasonToFail) {
  packed_ = scratch_.Write("a file", "no folder");
  EXPECT_EQ(Logits(some_), Plain(some_));
  EXPECT_TRUE(Warned() && !Wrote()) << log_;
  EXPECT_EQ(*ReadFile(packed_), "no folder");
}

// As a full disk would: writing stops somewhere within the panels.
TEST_F(PackedWeightsTest, FullDisksAreNoReasonToFail) {
  const std::vector<float> wanted = Plain(some_);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 20000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::vector<float> logits = Logits(some_);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(logits, wanted);
  EXPECT_TRUE(Warned() && !Wrote()) << log_;
  EXPECT_TRUE(Files().empty());
}

TEST_F(PackedWeightsTest, WritersAtOnceDoNoHarm) {
  const std::vector<float> wanted = Plain(some_);
  std::vector<std::thread> threads;
  std::vector<std::vector<float>> logits(4);
  for (std::vector<float>& one : logits) {
    threads.emplace_back([&one, this] {
      const auto backend = ValueOrDie(MakeCpuBackend({.threads = 1}));
      const LoadOptions options = {
          .weight_format = some_.format, .packed_weights = packed_, .log = {}};
      one = Feed(*ValueOrDie(LoadModel(TinyModel::Folder(some_.folder), *backend, options)).model);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::vector<float>& one : logits) EXPECT_EQ(one, wanted);
  EXPECT_EQ(Files().size(), 1u);
  EXPECT_EQ(Logits(some_), wanted);
  EXPECT_TRUE(Mapped()) << log_;
}

// The rows of its head are packed in another order than they are stored in.
TEST_F(PackedWeightsTest, AssistantsAreMappedToo) {
  const std::string folder =
      std::string(KVASIR_SOURCE_DIR) + "/testdata/assistants/gemma4_shared_ordered";
  TinyModel target({.folder = ValueOrDie(
                        ValueOrDie(Json::ParseFile(folder + "/golden.json")).GetString("target"))});
  KvSequence sequence = target.NewSequence();
  const std::vector<Token> tokens = RandomTokens(20, target.model().vocab_size(), 3);
  const SequenceRun run = {&sequence, tokens, 0, 1};
  ASSERT_TRUE(target.model().Forward(std::span(&run, 1), target.workspace()).ok());
  const ConstFloatRows states = target.workspace().HiddenStates();
  std::vector<std::vector<float>> logits;
  for (const bool is_packed : {false, true, true}) {
    LoadOptions options;
    if (is_packed) options.packed_weights = packed_;
    options.log = [this](LogLevel, std::string_view line) { log_ += line; };
    const auto assistant =
        ValueOrDie(LoadAssistant(folder, target.config(), target.backend(), options));
    Workspace workspace;
    const AssistantQuery query = {&sequence, 20, 7,
                                  std::span(states.row(0), static_cast<size_t>(states.cols))};
    const auto out = assistant.model->Forward(target.model(), std::span(&query, 1), workspace);
    logits.emplace_back(out.logits.row(0), out.logits.row(0) + out.logits.cols);
  }
  EXPECT_EQ(logits[1], logits[0]);
  EXPECT_EQ(logits[2], logits[0]);
  EXPECT_TRUE(Wrote() && Mapped()) << log_;
}

}  // namespace
}  // namespace kvasir
