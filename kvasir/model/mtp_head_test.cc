// The layer for multi-token prediction against recordings, and what is refused.
#include "kvasir/model/mtp_head.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kvasir/formats/checkpoint.h"
#include "kvasir/formats/safetensors_writer.h"
#include "kvasir/formats/test_files.h"
#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

// As in the recordings; bf16 weights would have activations rounded, too.
constexpr WeightFormat kExact = WeightFormat::kF32;

struct MtpCase {
  std::string folder;  // whose recording it is
  std::string files;   // what is loaded, if that is another; as TinyModelOptions::folder
  int threads = 1;

  std::string path() const { return files.empty() ? folder : files; }
  friend std::ostream& operator<<(std::ostream& out, const MtpCase& c) { return out << c.path(); }
};

class MtpHeadTest : public testing::TestWithParam<MtpCase> {
 protected:
  MtpHeadTest()
      : golden_(
            ValueOrDie(Json::ParseFile(TinyModel::Folder(GetParam().folder) + "/golden_mtp.json"))),
        target_({.folder = GetParam().path(), .threads = GetParam().threads, .weights = kExact}),
        head_(ValueOrDie(LoadMtpHead(TinyModel::Folder(GetParam().path()), target_.config(),
                                     target_.model(), target_.backend(),
                                     {.weight_format = kExact, .log = {}}))),
        spec_(std::make_shared<const KvCacheSpec>(head_->CacheSpec({KvCodec::Kind::kF32}))) {
    for (const Json& token : golden_.Find("tokens")->as_array()) {
      tokens_.push_back(static_cast<Token>(token.as_int()));
    }
    KvSequence sequence = target_.NewSequence();
    const auto rows = static_cast<int64_t>(tokens_.size());
    const SequenceRun run = {&sequence, tokens_, 0, rows};
    OrDie(target_.model().Forward(std::span(&run, 1), target_.workspace()).status());
    const ConstFloatRows states = target_.workspace().HiddenStates();
    for (int64_t row = 0; row < rows; ++row) {
      states_.insert(states_.end(), states.row(row), states.row(row) + states.cols);
    }
  }

  KvSequence NewCache() { return ValueOrDie(KvSequence::Create(&target_.pool(), spec_)); }
  // Reads the slots [cache.position(), end).
  PairHead::Output Read(KvSequence& cache, int64_t end) {
    const int64_t begin = cache.position();
    const int64_t size = head_->state_size();
    const PairRun run = {&cache,
                         std::span(tokens_).subspan(static_cast<size_t>(begin) + 1,
                                                    static_cast<size_t>(end - begin)),
                         {states_.data() + begin * size, end - begin, size, size}};
    return ValueOrDie(head_->Forward(std::span(&run, 1), head_->vocab_size(), workspace_));
  }
  // `row` of what was recorded under this name.
  void ExpectRow(const float* logits, const char* name, size_t row) const {
    const auto vocabulary = static_cast<size_t>(head_->vocab_size());
    const Json::Array& wanted = golden_.Find(name)->as_array();
    double worst = 0;
    for (size_t id = 0; id < vocabulary; ++id) {
      worst = std::max(worst, std::fabs(logits[id] - wanted[row * vocabulary + id].as_double()));
    }
    EXPECT_LE(worst, *golden_.GetDouble("tolerance")) << name << " " << row;
  }

  const Json golden_;
  TinyModel target_;
  const std::unique_ptr<const MtpHead> head_;
  const std::shared_ptr<const KvCacheSpec> spec_;
  std::vector<Token> tokens_;
  std::vector<float> states_;
  Workspace workspace_;
};

TEST_P(MtpHeadTest, SaysWhatWasRecorded) {
  const Json::Array& slots = golden_.Find("slots")->as_array();
  KvSequence cache = NewCache();
  for (size_t i = 0; i < slots.size(); ++i) {
    const PairHead::Output output = Read(cache, slots[i].as_int() + 1);
    ExpectRow(output.logits.row(0), "slot_logits", i);
  }
  PairHead::Output output = Read(cache, static_cast<int64_t>(tokens_.size()) - 1);
  const Json::Array& drafts = golden_.Find("drafts")->as_array();
  for (size_t i = 0; i < drafts.size(); ++i) {
    const float* const logits = output.logits.row(0);
    ExpectRow(logits, "draft_logits", i);
    const Token best =
        static_cast<Token>(std::max_element(logits, logits + output.logits.cols) - logits);
    ASSERT_EQ(best, drafts[i].as_int()) << "draft " << i;
    const PairRun run = {&cache, std::span(&best, 1), output.states};
    output = ValueOrDie(head_->Forward(std::span(&run, 1), head_->vocab_size(), workspace_));
  }
}

// Whatever is read with it, and in whatever pieces.
TEST_P(MtpHeadTest, BitsAreOfTheSequenceAlone) {
  const auto end = static_cast<int64_t>(tokens_.size()) - 1;
  KvSequence whole = NewCache();
  const PairHead::Output output = Read(whole, end);
  const std::vector<float> wanted(output.logits.row(0), output.logits.row(0) + output.logits.cols);
  KvSequence single = NewCache();
  for (int64_t slot = 1; slot <= end; ++slot) {
    const PairHead::Output at = Read(single, slot);
    if (slot < end) continue;
    EXPECT_EQ(std::vector<float>(at.logits.row(0), at.logits.row(0) + at.logits.cols), wanted);
  }
  const int64_t size = head_->state_size();
  std::vector<KvSequence> caches;
  std::vector<PairRun> runs;
  for (int64_t i = 0; i < 3; ++i) caches.push_back(NewCache());
  Read(caches[1], 20);
  for (int64_t i = 0; i < 3; ++i) {
    const int64_t begin = caches[static_cast<size_t>(i)].position();
    const int64_t stop = i == 2 ? 5 : end;
    runs.push_back({&caches[static_cast<size_t>(i)],
                    std::span(tokens_).subspan(static_cast<size_t>(begin) + 1,
                                               static_cast<size_t>(stop - begin)),
                    {states_.data() + begin * size, stop - begin, size, size}});
  }
  const PairHead::Output together =
      ValueOrDie(head_->Forward(runs, head_->vocab_size(), workspace_));
  for (int64_t row = 0; row < 2; ++row) {
    EXPECT_EQ(std::vector<float>(together.logits.row(row),
                                 together.logits.row(row) + together.logits.cols),
              wanted)
        << row;
  }
}

// Of some tokens only; the state is the same.
TEST_P(MtpHeadTest, LogitsMayBeOfTheFirstTokensOnly) {
  const auto end = static_cast<int64_t>(tokens_.size()) - 1;
  const int64_t size = head_->state_size();
  KvSequence whole = NewCache();
  const PairHead::Output all = Read(whole, end);
  const std::vector<float> logits(all.logits.row(0), all.logits.row(0) + all.logits.cols);
  const std::vector<float> state(all.states.row(0), all.states.row(0) + size);
  for (const int64_t few : {int64_t{0}, int64_t{16}, int64_t{112}}) {
    KvSequence cache = NewCache();
    const PairRun run = {&cache, std::span(tokens_).subspan(1), {states_.data(), end, size, size}};
    const auto some = ValueOrDie(head_->Forward(std::span(&run, 1), few, workspace_));
    ASSERT_EQ(some.logits.cols, few);
    EXPECT_TRUE(std::equal(logits.begin(), logits.begin() + few, some.logits.row(0)));
    EXPECT_TRUE(std::equal(state.begin(), state.end(), some.states.row(0)));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Recorded, MtpHeadTest,
    testing::Values(
        MtpCase{"transformers_qwen3_5_bf16", "", 1}, MtpCase{"transformers_qwen3_next_bf16", "", 1},
        MtpCase{"transformers_qwen3_5_wrapped_bf16", "", 2},
        MtpCase{"transformers_qwen3_5_moe_bf16", "", 1},
        // Its own experts are in one tensor, those of the layer are apart.
        MtpCase{"transformers_qwen3_5_moe_wrapped_bf16", "", 1},
        MtpCase{"transformers_qwen3_5_moe_bf16", "testdata/gguf/qwen35moe_bf16.gguf", 1},
        // The layer behind the last one, with embeddings and a head that are not read.
        MtpCase{"transformers_glm4_moe_lite_bf16", "", 1},
        MtpCase{"transformers_glm4_moe_bf16", "", 2},
        MtpCase{"transformers_glm4_moe_lite_bf16", "testdata/gguf/glm4_moe_lite_bf16.gguf", 1},
        MtpCase{"transformers_glm4_moe_bf16", "testdata/gguf/glm4moe_bf16.gguf", 1}));

// Without room no cache moves.
TEST_P(MtpHeadTest, AFullPoolIsAnError) {
  KvPool pool({.budget_bytes = 1});
  KvSequence cache = ValueOrDie(KvSequence::Create(&pool, spec_));
  const PairRun run = {&cache,
                       std::span(tokens_).subspan(1, 1),
                       {states_.data(), 1, head_->state_size(), head_->state_size()}};
  const auto output = head_->Forward(std::span(&run, 1), head_->vocab_size(), workspace_);
  ASSERT_FALSE(output.ok());
  EXPECT_EQ(output.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(cache.position(), 0);
}

// A safetensors file of these tensors, all zero.
void WriteZeros(const std::string& path, const std::vector<TensorDeclaration>& declared) {
  auto writer = ValueOrDie(SafetensorsWriter::Create(path, declared));
  for (const TensorDeclaration& tensor : declared) {
    const auto bytes = ValueOrDie(DenseTensorBytes(tensor.dtype, tensor.shape));
    OrDie(writer.Append(tensor.name, std::vector<std::byte>(static_cast<size_t>(bytes))));
  }
  OrDie(writer.Finish());
}

Error RefusalOf(const std::string& folder) {
  TinyModel tiny({.folder = folder});
  const auto head =
      LoadMtpHead(TinyModel::Folder(folder), tiny.config(), tiny.model(), tiny.backend());
  return head.ok() ? Error{} : head.error();
}

TEST(MtpHead, ModelsWithoutOneAreToldSo) {
  const Error other = RefusalOf("public_qwen3_f32");
  EXPECT_EQ(other.code, ErrorCode::kInvalidArgument);
  const Error without = RefusalOf("mlx_qwen3_5_q4g32_bf16");
  EXPECT_EQ(without.code, ErrorCode::kNotFound);
  EXPECT_NE(without.message.find("mtp.fc.weight"), std::string::npos);
  EXPECT_EQ(RefusalOf("testdata/gguf/qwen35_bf16.gguf").code, ErrorCode::kNotFound);
  EXPECT_EQ(RefusalOf("transformers_deepseek_v3_bf16").code, ErrorCode::kNotFound);
}

// A folder of a model with other tensors, or another config.
struct Changed {
  const char* part;  // of the message
  std::function<void(std::map<std::string, std::vector<int64_t>>* tensors, Json* config)> change;
};

TEST(MtpHead, WhatCannotBeReadIsRefusedByName) {
  const auto with = [](const char* name, std::vector<int64_t> shape) {
    return [name, shape](auto* tensors, Json*) { (*tensors)[name] = shape; };
  };
  const Changed cases[] = {
      {"'mtp.layers.1.input_layernorm.weight'", with("mtp.layers.1.input_layernorm.weight", {48})},
      {"'mtp.embed_tokens.weight'", with("mtp.embed_tokens.weight", {256, 48})},
      {"'mtp.shared_head.head.weight'", with("mtp.shared_head.head.weight", {256, 48})},
      {"mtp.fc.weight", with("mtp.fc.weight", {96, 48})},
      {"mtp.norm.weight", with("mtp.norm.weight", {47})},
      {"mtp.layers.0.self_attn.q_proj.weight", with("mtp.layers.0.self_attn.q_proj.weight", {48})},
      {"no layer with attention", [](auto*, Json* config) {
         config->Set("layer_types", Json::Array(5, Json("linear_attention")));
       }}};
  const std::string base = TinyModel::Folder("transformers_qwen3_5_bf16");
  for (const Changed& changed : cases) {
    const ScratchFolder scratch;
    Json config = ValueOrDie(Json::ParseFile(base + "/config.json"));
    std::map<std::string, std::vector<int64_t>> shapes;
    const auto stored = ValueOrDie(Checkpoint::Open(base));
    for (const std::string& name : stored.names()) shapes[name] = stored.Find(name)->shape;
    changed.change(&shapes, &config);
    scratch.Write("config.json", config.Dump());
    std::vector<TensorDeclaration> declared;
    for (const auto& [name, shape] : shapes) declared.push_back({name, DType::kBf16, shape});
    WriteZeros(scratch.File("model.safetensors"), declared);
    const auto backend = ValueOrDie(MakeCpuBackend({.threads = 1}));
    TinyModel tiny({.folder = "transformers_qwen3_5_bf16"});
    const auto parsed = ValueOrDie(ModelConfig::Load(scratch.path()));
    const auto head = LoadMtpHead(scratch.path(), parsed, tiny.model(), *backend);
    ASSERT_FALSE(head.ok()) << changed.part;
    EXPECT_NE(head.error().message.find(changed.part), std::string::npos) << head.error().message;
    EXPECT_NE(head.error().message.find(scratch.path()), std::string::npos) << head.error().message;
  }
}

TEST(MtpHead, SeveralAreRefused) {
  const ScratchFolder scratch;
  const std::string base = TinyModel::Folder("transformers_glm4_moe_lite_bf16");
  Json config = ValueOrDie(Json::ParseFile(base + "/config.json"));
  config.Set("num_nextn_predict_layers", int64_t{2});
  scratch.Write("config.json", config.Dump());
  std::filesystem::copy(base + "/model.safetensors", scratch.File("model.safetensors"));
  const Status fits = CheckMtpHead(scratch.path());
  ASSERT_FALSE(fits.ok());
  EXPECT_EQ(fits.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(fits.error().message.find("2 layers"), std::string::npos) << fits.error().message;
}

TEST(MtpHead, ShapesCanBeMadeUp) {
  TinyModel tiny({.folder = "transformers_qwen3_5_bf16"});
  const auto made = [&](WeightFormat format) {
    return ValueOrDie(MakeRandomMtpHead(tiny.config(), tiny.model(), tiny.backend(), format))
        ->weight_bytes();
  };
  const auto stored = ValueOrDie(LoadMtpHead(TinyModel::Folder("transformers_qwen3_5_bf16"),
                                             tiny.config(), tiny.model(), tiny.backend(),
                                             {.weight_format = WeightFormat::kF32, .log = {}}));
  EXPECT_EQ(made(WeightFormat::kF32), stored->weight_bytes());
  EXPECT_LT(made(WeightFormat::kQ8), stored->weight_bytes());
}

// On every instruction set and by any number of threads.
TEST(MtpHead, BitsAreTheSameEverywhere) {
  const char* const folder = "transformers_qwen3_5_moe_bf16";
  std::vector<float> wanted;
  for (const Isa isa : SupportedIsas()) {
    for (const int threads : {1, 3}) {
      TinyModel tiny({.folder = folder, .threads = threads, .isa = isa});
      const auto head = ValueOrDie(
          LoadMtpHead(TinyModel::Folder(folder), tiny.config(), tiny.model(), tiny.backend()));
      KvSequence sequence = tiny.NewSequence();
      const std::vector<Token> tokens = RandomTokens(70, 256, 3);
      const SequenceRun run = {&sequence, tokens, 0, 70};
      OrDie(tiny.model().Forward(std::span(&run, 1), tiny.workspace()).status());
      const auto spec = std::make_shared<const KvCacheSpec>(head->CacheSpec({KvCodec::Kind::kF16}));
      KvSequence cache = ValueOrDie(KvSequence::Create(&tiny.pool(), spec));
      const PairRun pairs = {&cache, std::span(tokens).subspan(1),
                             tiny.workspace().HiddenStates().Part(0, 69)};
      Workspace workspace;
      const auto output = ValueOrDie(head->Forward(std::span(&pairs, 1), 256, workspace));
      const std::vector<float> logits(output.logits.row(0), output.logits.row(0) + 256);
      if (wanted.empty()) wanted = logits;
      EXPECT_EQ(logits, wanted) << static_cast<int>(isa) << " by " << threads;
    }
  }
}

}  // namespace
}  // namespace kvasir
