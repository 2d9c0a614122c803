// Converted models are the models they were made of.
#include "kvasir/convert/convert_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>

#include "kvasir/convert/conversion_notes.h"
#include "kvasir/convert/convert_test_util.h"
#include "kvasir/formats/safetensors.h"
#include "kvasir/formats/safetensors_writer.h"
#include "kvasir/formats/test_files.h"
#include "kvasir/model/model_loader.h"
#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

namespace fs = std::filesystem;

struct Lossless {
  const char* name;
  const char* source;
  const char* type;
  WeightFormat source_weights = WeightFormat::kF32;
};

class LosslessTest : public testing::TestWithParam<Lossless> {};

// With float weights: conversions that lose nothing give the same bits.
TEST_P(LosslessTest, SameLogits) {
  const ScratchFolder scratch;
  const std::string out = scratch.File("out");
  const Status done = Convert(Path(GetParam().source), GetParam().type, out);
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(scratch.FileCount(), 1u);  // nothing temporary is left
  const auto wanted = Logits(Path(GetParam().source), GetParam().source_weights);
  EXPECT_EQ(Logits(out, WeightFormat::kF32), wanted);
}

INSTANTIATE_TEST_SUITE_P(
    All, LosslessTest,
    testing::Values(
        Lossless{"Copy", "testdata/models/transformers_qwen2_f16", "stored"},
        Lossless{"Wider", "testdata/models/transformers_qwen2_f16", "f32"},
        Lossless{"ShardsJoined", "testdata/models/transformers_gemma3_sharded_bf16", "stored"},
        Lossless{"MlxCopied", "testdata/models/mlx_qwen3_q4g32_bf16", "stored"},
        // Rounded as MLX decodes them; f32 keeps what they are before that.
        Lossless{"MlxDecoded", "testdata/models/mlx_qwen3_q4g32_bf16", "bf16", WeightFormat::kBf16},
        Lossless{"GptqCopied", "testdata/models/hf_qwen3_gptq", "stored"},
        Lossless{"CompressedCopied", "testdata/models/hf_qwen3_compressed_tensors", "stored"},
        Lossless{"AwqDecoded", "testdata/models/hf_qwen3_awq", "f32"},
        Lossless{"CompressedDecoded", "testdata/models/hf_qwen3_compressed_tensors", "f32"},
        Lossless{"Fp8Decoded", "testdata/models/hf_qwen3_fp8", "f32"},
        Lossless{"ModelOptDecoded", "testdata/models/hf_qwen3_modelopt", "f32"},
        Lossless{"GgufF16", "testdata/gguf/qwen2_f16.gguf", "stored"},
        // Norms lose their 1 and get it back.
        Lossless{"GgufGemma", "testdata/gguf/gemma3_bf16-00001-of-00002.gguf", "stored"},
        Lossless{"GgufRope", "testdata/gguf/llama3_rope_bf16.gguf", "stored"},
        Lossless{"GgufQ8", "testdata/gguf/qwen3_q8_0.gguf", "f32"}),
    [](const auto& info) { return std::string(info.param.name); });

// The tiny llama with biases everywhere and tokens that must not be chosen.
std::string BiasedLlama(const ScratchFolder& scratch) {
  const std::string source = Path("testdata/models/public_llama_f32");
  const std::string folder = scratch.File("biased");
  fs::create_directory(folder);
  Json config = ValueOrDie(Json::ParseFile(source + "/config.json"));
  config.Set("attention_bias", true);
  config.Set("mlp_bias", true);
  EXPECT_TRUE(WriteFileAtomic(folder + "/config.json", config.Dump()).ok());
  EXPECT_TRUE(
      WriteFileAtomic(folder + "/generation_config.json", R"({"suppress_tokens": [3, 77]})").ok());
  const auto stored = ValueOrDie(SafetensorsFile::Open(source + "/model.safetensors"));
  std::vector<TensorDeclaration> declared;
  for (const auto& [name, tensor] : stored.tensors()) {
    declared.push_back({name, tensor.dtype, tensor.shape});
    const size_t weight = name.find("_proj.weight");
    if (weight == std::string::npos) continue;
    declared.push_back({name.substr(0, weight) + "_proj.bias", DType::kF32, {tensor.shape[0]}});
  }
  auto writer = ValueOrDie(SafetensorsWriter::Create(folder + "/model.safetensors", declared));
  for (const TensorDeclaration& tensor : declared) {
    const TensorView* const view = stored.Find(tensor.name);
    if (view != nullptr) {
      const size_t bytes = static_cast<size_t>(view->elements()) * DTypeBytes(view->dtype);
      EXPECT_TRUE(writer.Append(tensor.name, {view->data, bytes}).ok());
      continue;
    }
    std::vector<float> bias(static_cast<size_t>(tensor.shape[0]));
    for (size_t i = 0; i < bias.size(); ++i) bias[i] = static_cast<float>(i % 13) / 8 - 0.5f;
    EXPECT_TRUE(writer.Append(tensor.name, std::as_bytes(std::span(bias))).ok());
  }
  EXPECT_TRUE(writer.Finish().ok());
  return folder;
}

// A folder with this config, the tensors of another folder, and such tensors of zeros beside them.
// `copies`: tensors whose numbers are another one's.
std::string FolderWith(const ScratchFolder& scratch, const char* name, const Json& config,
                       const std::string& source, std::vector<TensorDeclaration> declared,
                       const std::map<std::string, std::string>& copies = {}) {
  const std::string folder = scratch.File(name);
  fs::create_directory(folder);
  EXPECT_TRUE(WriteFileAtomic(folder + "/config.json", config.Dump()).ok());
  const auto stored = ValueOrDie(SafetensorsFile::Open(source + "/model.safetensors"));
  for (const auto& [tensor, view] : stored.tensors()) {
    declared.push_back({tensor, view.dtype, view.shape});
  }
  auto writer = ValueOrDie(SafetensorsWriter::Create(folder + "/model.safetensors", declared));
  for (const TensorDeclaration& tensor : declared) {
    size_t bytes = DTypeBytes(tensor.dtype);
    for (const int64_t extent : tensor.shape) bytes *= static_cast<size_t>(extent);
    const auto copy = copies.find(tensor.name);
    const TensorView* const view = stored.Find(copy == copies.end() ? tensor.name : copy->second);
    const std::vector<std::byte> zeros(bytes);
    EXPECT_TRUE(
        writer.Append(tensor.name, {view == nullptr ? zeros.data() : view->data, bytes}).ok());
  }
  EXPECT_TRUE(writer.Finish().ok());
  return folder;
}

// The tiny llama, but that `field` of its config has this value, and tensors beside its own.
std::string LlamaWith(const ScratchFolder& scratch, const char* name, const char* field, Json value,
                      std::vector<TensorDeclaration> more) {
  const std::string tiny = Path("testdata/models/public_llama_f32");
  Json config = ValueOrDie(Json::ParseFile(tiny + "/config.json"));
  config.Set(field, std::move(value));
  return FolderWith(scratch, name, config, tiny, std::move(more));
}

// Nobody here can decode them, so nothing of them may be lost.
TEST(ConvertModel, UnknownQuantizationIsCopiedOrRefused) {
  const ScratchFolder scratch;
  const std::string module = "model.layers.0.self_attn.q_proj";
  const std::string source = LlamaWith(scratch, "hqq", "quantization_config",
                                       Json::Object{{"quant_method", "hqq"}, {"bits", int64_t{4}}},
                                       {{module + ".qweight", DType::kI32, {8, 64}},
                                        {module + ".qzeros", DType::kI32, {2, 8}},
                                        {module + ".scales", DType::kF16, {2, 64}}});
  for (const char* type : {"f16", "int4"}) {
    const Status done = Convert(source, type, scratch.File(type));
    ASSERT_FALSE(done.ok()) << type;
    EXPECT_EQ(done.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(done.error().message.find("hqq"), std::string::npos) << done.error().message;
  }
  const auto model = ValueOrDie(ModelSource::Open(source));
  EXPECT_FALSE(
      WriteGguf(model, scratch.File("x.gguf"), {.type = "f16", .threads = 2, .progress = {}}).ok());
  const std::string out = scratch.File("out");
  const Status done = Convert(source, "stored", out);
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(ValueOrDie(Checkpoint::Open(out)).names(),
            ValueOrDie(Checkpoint::Open(source)).names());
  const Json config = ValueOrDie(Json::ParseFile(out + "/config.json"));
  EXPECT_EQ(config.Find("quantization"), nullptr);
  ASSERT_NE(config.Find("quantization_config"), nullptr);
  EXPECT_EQ(*config.Find("quantization_config")->Find("quant_method"), Json("hqq"));
}

// One module in a way that is not known, whatever config.json says.
TEST(ConvertModel, OneUnknownModuleLeavesAllToBeCopied) {
  const ScratchFolder scratch;
  const std::string module = "model.layers.0.self_attn.q_proj";
  const std::string source = LlamaWith(scratch, "module", "quantization_config",
                                       Json::Object{{"quant_method", "compressed-tensors"}},
                                       {{module + ".weight_packed", DType::kU8, {64, 32}},
                                        {module + ".weight_scale", DType::kF8E4m3, {64, 4}}});
  const Status done = Convert(source, "f16", scratch.File("f16"));
  ASSERT_FALSE(done.ok());
  EXPECT_NE(done.error().message.find("'" + module + "': weight_global_scale"), std::string::npos)
      << done.error().message;
  EXPECT_NE(done.error().message.find("--type stored"), std::string::npos);
  const std::string out = scratch.File("out");
  ASSERT_TRUE(Convert(source, "stored", out).ok());
  EXPECT_EQ(ValueOrDie(Checkpoint::Open(out)).names(),
            ValueOrDie(Checkpoint::Open(source)).names());
  EXPECT_NE(ValueOrDie(Json::ParseFile(out + "/config.json")).Find("quantization_config"), nullptr);
}

// Of nothing: floats with scales beside them are what they are.
TEST(ConvertModel, AConfigAloneQuantizesNothing) {
  const ScratchFolder scratch;
  for (const char* field : {"quantization", "quantization_config"}) {
    const std::string source =
        LlamaWith(scratch, field, field, Json::Object{{"quant_method", "compressed-tensors"}}, {});
    const Status done = Convert(source, "int4", scratch.File(std::string(field) + "_int4"));
    EXPECT_TRUE(done.ok()) << done.error().message;
  }
}

// What config.json says of codes goes where they go; ModelOpt says it in a second file.
TEST(ConvertModel, TheConfigSaysWhatBecameOfCodes) {
  const ScratchFolder scratch;
  const std::string source = scratch.File("source");
  fs::copy(Path("testdata/models/hf_qwen3_modelopt"), source);
  ASSERT_TRUE(WriteFileAtomic(source + "/hf_quant_config.json", "{}").ok());
  const std::string copy = scratch.File("copy");
  ASSERT_TRUE(Convert(source, "stored", copy).ok());
  const Json config = ValueOrDie(Json::ParseFile(copy + "/config.json"));
  EXPECT_EQ(*config.Find("quantization_config")->Find("quant_method"), Json("modelopt"));
  EXPECT_EQ(config.Find("quantization"), nullptr);
  EXPECT_TRUE(FileExists(copy + "/hf_quant_config.json"));
  const std::string decoded = scratch.File("decoded");
  ASSERT_TRUE(Convert(source, "bf16", decoded).ok());
  EXPECT_EQ(ValueOrDie(Json::ParseFile(decoded + "/config.json")).Find("quantization_config"),
            nullptr);
  EXPECT_FALSE(FileExists(decoded + "/hf_quant_config.json"));
}

TEST(ConvertModel, WhatIsQuantizedIsNotQuantizedAgain) {
  const ScratchFolder scratch;
  const std::string quantized = Path("testdata/gguf/qwen3_q8_0.gguf");
  EXPECT_FALSE(Convert(quantized, "int4", scratch.File("int4")).ok());
  EXPECT_TRUE(Convert(quantized, "bf16", scratch.File("bf16")).ok());
  for (const std::string& source : {quantized, Path("testdata/models/mlx_qwen3_q4g32_bf16"),
                                    Path("testdata/models/hf_qwen3_gptq")}) {
    const auto model = ValueOrDie(ModelSource::Open(source));
    const Status done =
        WriteGguf(model, scratch.File("q.gguf"), {.type = "q4_0", .threads = 2, .progress = {}});
    ASSERT_FALSE(done.ok()) << source;
    EXPECT_NE(done.error().message.find("loses twice"), std::string::npos) << done.error().message;
  }
}

// Nobody asks for them in the folder, and in a file some would be believed: AutoGPTQ writes biases
// of zeros that no config.json knows.
TEST(ConvertModel, WhatNoDecoderReadsStaysBehindInGgufFiles) {
  const ScratchFolder scratch;
  const std::vector<TensorDeclaration> unread = {
      {"model.layers.99.mlp.up_proj.weight", DType::kF32, {4, 32}},
      {"model.layers.98.mlp.up_proj.weight", DType::kF32, {4, 0}},
      {"model.layers.0.self_attn.q_proj.bias", DType::kF32, {64}}};
  const std::string source = LlamaWith(scratch, "more", "eos_token_id", Json(int64_t{2}), unread);
  const auto model = ValueOrDie(ModelSource::Open(source));
  const auto notes = ConversionNotes(model, {.is_gguf = true, .is_stored = true});
  ASSERT_EQ(notes.size(), 1u);
  for (const TensorDeclaration& tensor : unread) {
    EXPECT_NE(notes[0].find(tensor.name), std::string::npos) << notes[0];
  }
  EXPECT_TRUE(ConversionNotes(model, {.is_gguf = false, .is_stored = true}).empty());
  const std::string file = scratch.File("x.gguf");
  const Status done = WriteGguf(model, file, {.type = "f32", .threads = 2, .progress = {}});
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(Logits(file, WeightFormat::kF32), Logits(source, WeightFormat::kF32));
  EXPECT_TRUE(UnreadTensorsOf(ValueOrDie(ModelSource::Open(file)))->empty());
}

// The config says that the head is the embeddings: a copy of them is nothing to speak of.
TEST(ConvertModel, ATiedModelsOwnHeadIsSpokenOf) {
  const ScratchFolder scratch;
  const std::string tiny = Path("testdata/models/public_llama_f32");
  Json config = ValueOrDie(Json::ParseFile(tiny + "/config.json"));
  config.Set("tie_word_embeddings", true);
  const std::string copied = FolderWith(scratch, "copied", config, tiny, {},
                                        {{"lm_head.weight", "model.embed_tokens.weight"}});
  const std::string other = FolderWith(scratch, "other", config, tiny, {});
  const auto unread = [](const std::string& folder) {
    return ValueOrDie(UnreadTensorsOf(ValueOrDie(ModelSource::Open(folder))));
  };
  EXPECT_EQ(unread(copied), std::vector<std::string>());
  EXPECT_EQ(unread(other), std::vector<std::string>{"lm_head.weight"});
  EXPECT_EQ(Logits(other, WeightFormat::kF32), Logits(copied, WeightFormat::kF32));
}

// A module is left behind for want of a reader, not for what lies beside its weights.
TEST(ConvertModel, QuantizedModulesStayBehindWhole) {
  const ScratchFolder scratch;
  const std::string gptq = Path("testdata/models/hf_qwen3_gptq");
  const std::string far = "model.layers.99.self_attn.k_proj.";
  const std::string source =
      FolderWith(scratch, "more", ValueOrDie(Json::ParseFile(gptq + "/config.json")), gptq,
                 {{"model.layers.0.self_attn.k_proj.q_scale", DType::kF32, {1}},
                  {far + "g_idx", DType::kI32, {64}},
                  {far + "qweight", DType::kI32, {8, 48}},
                  {far + "qzeros", DType::kI32, {2, 6}},
                  {far + "scales", DType::kF16, {2, 48}}});
  const auto model = ValueOrDie(ModelSource::Open(source));
  const auto unread = ValueOrDie(UnreadTensorsOf(model));
  EXPECT_TRUE(std::ranges::count(unread, "model.layers.0.self_attn.k_proj.q_scale"));
  EXPECT_TRUE(std::ranges::count(unread, far + "qweight"));
  const std::string file = scratch.File("x.gguf");
  const Status done = WriteGguf(model, file, {.type = "f32", .threads = 2, .progress = {}});
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(Logits(file, WeightFormat::kF32), Logits(gptq, WeightFormat::kF32));
  EXPECT_TRUE(UnreadTensorsOf(ValueOrDie(ModelSource::Open(file)))->empty());
}

TEST(ConvertModel, EveryTokenThatEndsAnAnswerComesAlong) {
  const ScratchFolder scratch;
  const std::string three =
      LlamaWith(scratch, "three", "eos_token_id",
                Json::Array{Json(int64_t{2}), Json(int64_t{7}), Json(int64_t{9})}, {});
  const std::string file = scratch.File("three.gguf");
  const auto model = ValueOrDie(ModelSource::Open(three));
  const Status done = WriteGguf(model, file, {.type = "f32", .threads = 2, .progress = {}});
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(ValueOrDie(LoadModelConfig(file)).eos_token_ids, (std::vector<Token>{2, 7, 9}));
  const std::string four = LlamaWith(
      scratch, "four", "eos_token_id",
      Json::Array{Json(int64_t{2}), Json(int64_t{7}), Json(int64_t{9}), Json(int64_t{11})}, {});
  const auto more = ValueOrDie(ModelSource::Open(four));
  EXPECT_FALSE(
      WriteGguf(more, scratch.File("four.gguf"), {.type = "f32", .threads = 2, .progress = {}})
          .ok());
}

// The tiny llama with a number of ours in one of its matrices, kOdd.
constexpr const char* kOdd = "model.layers.1.mlp.up_proj.weight";
std::string LlamaWithNumber(const ScratchFolder& scratch, float number) {
  const std::string source = scratch.File("odd" + std::to_string(number));
  fs::create_directory(source);
  const std::string tiny = Path("testdata/models/public_llama_f32");
  fs::copy_file(tiny + "/config.json", source + "/config.json");
  const auto stored = ValueOrDie(SafetensorsFile::Open(tiny + "/model.safetensors"));
  std::vector<TensorDeclaration> declared;
  for (const auto& [name, tensor] : stored.tensors()) {
    declared.push_back({name, tensor.dtype, tensor.shape});
  }
  auto writer = ValueOrDie(SafetensorsWriter::Create(source + "/model.safetensors", declared));
  for (const TensorDeclaration& tensor : declared) {
    std::vector<float> values(static_cast<size_t>(stored.Find(tensor.name)->elements()));
    ReadFloats(*stored.Find(tensor.name), 0, static_cast<int64_t>(values.size()), values.data());
    if (tensor.name == kOdd) values[70] = number;
    EXPECT_TRUE(writer.Append(tensor.name, std::as_bytes(std::span(values))).ok());
  }
  EXPECT_TRUE(writer.Finish().ok());
  return source;
}

// What a model says must not become infinite on the way.
TEST(ConvertModel, NumbersBeyondTheTypeAreNamed) {
  const ScratchFolder scratch;
  const std::string source = LlamaWithNumber(scratch, 1e9f);
  for (const char* type : {"f16", "int4", "nvfp4"}) {
    const Status done = Convert(source, type, scratch.File(type));
    ASSERT_FALSE(done.ok()) << type;
    EXPECT_NE(done.error().message.find(kOdd), std::string::npos) << done.error().message;
    EXPECT_NE(done.error().message.find("beyond those of"), std::string::npos);
    // Nobody could go on with what was made.
    EXPECT_FALSE(DirectoryExists(scratch.File(type) + ".partial")) << type;
  }
  for (const char* type : {"bf16", "mxfp8"}) {
    const Status done = Convert(source, type, scratch.File(type));
    EXPECT_TRUE(done.ok()) << done.error().message;
  }
  const auto model = ValueOrDie(ModelSource::Open(source));
  for (const char* type : {"f16", "q8_0", "bf16"}) {
    const std::string out = scratch.File(std::string(type) + ".gguf");
    const Status done = WriteGguf(model, out, {.type = type, .threads = 2, .progress = {}});
    EXPECT_EQ(done.ok(), std::string(type) == "bf16") << type;
    EXPECT_EQ(FileExists(out), done.ok());
  }
}

// Nor must what is infinite become a number.
TEST(ConvertModel, InfinitiesStayOrAreNamed) {
  for (const float number : {INFINITY, -INFINITY, std::nanf("")}) {
    const ScratchFolder scratch;
    const std::string source = LlamaWithNumber(scratch, number);
    const auto model = ValueOrDie(ModelSource::Open(source));
    for (const char* type : {"int8", "int4", "mxfp4", "mxfp8", "nvfp4"}) {
      const Status done = Convert(source, type, scratch.File(type));
      ASSERT_FALSE(done.ok()) << type;
      EXPECT_NE(done.error().message.find(kOdd), std::string::npos) << done.error().message;
      EXPECT_NE(done.error().message.find(type), std::string::npos) << done.error().message;
    }
    for (const char* type : {"q8_0", "q4_0"}) {
      const Status done =
          WriteGguf(model, scratch.File("x.gguf"), {.type = type, .threads = 2, .progress = {}});
      ASSERT_FALSE(done.ok()) << type;
      EXPECT_NE(done.error().message.find(kOdd), std::string::npos) << done.error().message;
    }
    for (const char* type : {"f16", "bf16", "f32"}) {
      const std::string out = scratch.File(type);
      ASSERT_TRUE(Convert(source, type, out).ok()) << type;
      const auto written = ValueOrDie(Checkpoint::Open(out));
      float value = 0;
      ReadFloats(*written.Find(kOdd), 70, 1, &value);
      EXPECT_EQ(std::isnan(value), std::isnan(number));
      if (!std::isnan(number)) {
        EXPECT_EQ(value, number);
      }
    }
  }
}

// As the cache of a download that has not ended.
TEST(ConvertModel, LinksThatLeadNowhereAreNamed) {
  const ScratchFolder scratch;
  const std::string source = scratch.File("source");
  fs::create_directory(source);
  for (const char* kept : {"config.json", "model.safetensors"}) {
    fs::copy_file(Path("models/kvasir-demo/") + kept, source + "/" + kept);
  }
  fs::create_symlink("/nowhere/blob", source + "/tokenizer.json");
  const Status done = Convert(source, "stored", scratch.File("out"));
  ASSERT_FALSE(done.ok());
  EXPECT_NE(done.error().message.find("tokenizer.json"), std::string::npos);
}

// Wherever config.json says it: readers look within text_config first.
TEST(ConvertModel, TheTypeIsSaidEverywhere) {
  const ScratchFolder scratch;
  const std::string out = scratch.File("out");
  ASSERT_TRUE(Convert(Path("testdata/models/transformers_gemma4_shared_bf16"), "f32", out).ok());
  const Json config = ValueOrDie(Json::ParseFile(out + "/config.json"));
  int64_t said = 0;
  for (const Json* const level : {&config, config.Find("text_config")}) {
    for (const char* field : {"dtype", "torch_dtype"}) {
      const Json* const type = level == nullptr ? nullptr : level->Find(field);
      if (type == nullptr) continue;
      ++said;
      EXPECT_EQ(*type, Json("float32")) << field;
    }
  }
  EXPECT_GE(said, 2);
}

// What no decoder reads has no name in a folder.
TEST(ConvertModel, WhatIsLeftOutIsKnown) {
  const ScratchFolder scratch;
  const std::string whole = Path("testdata/gguf/llama3_rope_bf16.gguf");
  EXPECT_TRUE(ValueOrDie(ModelSource::Open(whole)).left_out().empty());
  std::string bytes = *ReadFile(whole);
  const std::string known = "rope_freqs.weight";
  const std::string other = "rope_frequ.weight";
  bytes.replace(bytes.find(known), known.size(), other);
  const std::string path = scratch.File("other.gguf");
  ASSERT_TRUE(WriteFileAtomic(path, bytes).ok());
  EXPECT_EQ(ValueOrDie(ModelSource::Open(path)).left_out(), std::vector<std::string>{other});
}

// Rows of q and k lie in another order in a GGUF file, and so do their biases.
TEST(ConvertModel, BiasesAndSuppressedTokensComeAlong) {
  const ScratchFolder scratch;
  const std::string source = BiasedLlama(scratch);
  const std::string file = scratch.File("model.gguf");
  const auto model = ValueOrDie(ModelSource::Open(source));
  Status done = WriteGguf(model, file, {.type = "f32", .threads = 2, .progress = {}});
  ASSERT_TRUE(done.ok()) << done.error().message;
  const std::string folder = scratch.File("out");
  done = Convert(file, "stored", folder);
  ASSERT_TRUE(done.ok()) << done.error().message;
  const std::string again = scratch.File("again.gguf");
  const auto copy = ValueOrDie(ModelSource::Open(file));
  done = WriteGguf(copy, again, {.type = "f32", .threads = 2, .progress = {}});
  ASSERT_TRUE(done.ok()) << done.error().message;
  const auto wanted = Logits(source, WeightFormat::kF32);
  EXPECT_TRUE(std::isinf(wanted[77]));
  EXPECT_NE(wanted, Logits(Path("testdata/models/public_llama_f32"), WeightFormat::kF32));
  EXPECT_EQ(Logits(file, WeightFormat::kF32), wanted);
  EXPECT_EQ(Logits(folder, WeightFormat::kF32), wanted);
  EXPECT_EQ(Logits(again, WeightFormat::kF32), wanted);
}

class RoundTripTest : public testing::TestWithParam<const char*> {};

// A folder, a GGUF file of it, and a folder of that give the same bits.
TEST_P(RoundTripTest, SameLogits) {
  const ScratchFolder scratch;
  const std::string source = Path("testdata/models/" + std::string(GetParam()));
  const std::string file = scratch.File("model.gguf");
  const auto model = ValueOrDie(ModelSource::Open(source));
  Status done = WriteGguf(model, file, {.type = "f32", .threads = 2, .progress = {}});
  ASSERT_TRUE(done.ok()) << done.error().message;
  const std::string out = scratch.File("out");
  done = Convert(file, "stored", out);
  ASSERT_TRUE(done.ok()) << done.error().message;
  const auto wanted = Logits(source, WeightFormat::kF32);
  EXPECT_EQ(Logits(file, WeightFormat::kF32), wanted);
  EXPECT_EQ(Logits(out, WeightFormat::kF32), wanted);
}

INSTANTIATE_TEST_SUITE_P(
    All, RoundTripTest,
    testing::Values("transformers_llama3_rope_bf16", "public_llama_f32", "transformers_qwen2_f16",
                    "public_qwen3_f32", "transformers_qwen3_moe_bf16", "transformers_gemma2_bf16",
                    "transformers_mistral3_bf16", "public_gemma3_f32",
                    "transformers_gemma4_shared_bf16", "transformers_gemma4_one_projection_bf16",
                    "transformers_gemma4_experts_bf16", "transformers_ministral3_bf16",
                    "transformers_smollm3_bf16", "transformers_granite_bf16",
                    "transformers_granite_dense_bf16", "transformers_olmo2_bf16",
                    "transformers_lfm2_bf16", "transformers_lfm2_moe_bf16",
                    "transformers_olmo3_bf16", "transformers_phi3_bf16",
                    "transformers_phi4_mini_bf16", "transformers_deepseek_v2_lite_bf16",
                    "transformers_deepseek_v3_bf16", "transformers_glm4_moe_lite_bf16",
                    "transformers_glm4_bf16", "transformers_glm4_moe_bf16"));

// Root mean square error over that of the logits.
double RelativeError(const std::vector<float>& actual, const std::vector<float>& wanted) {
  EXPECT_EQ(actual.size(), wanted.size());
  double error = 0;
  double variance = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    error += std::pow(double{actual[i]} - double{wanted[i]}, 2);
    variance += double{wanted[i]} * wanted[i];
  }
  return std::sqrt(error / variance);
}

// Read from GGUF files, not written to them; experts that lie turned round stay as they are.
TEST(ConvertModel, GptOss) {
  const ScratchFolder scratch;
  const std::string file = Path("testdata/gguf/gpt_oss_mxfp4.gguf");
  Status done = Convert(file, "stored", scratch.File("of_gguf"));
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(Logits(scratch.File("of_gguf"), WeightFormat::kF32), Logits(file, WeightFormat::kF32));
  const std::string dense = Path("testdata/models/transformers_gpt_oss_bf16");
  done = Convert(dense, "f32", scratch.File("wide"));
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(Logits(scratch.File("wide"), WeightFormat::kF32), Logits(dense, WeightFormat::kF32));
  done = Convert(dense, "int4", scratch.File("refused"));
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(done.error().message.find("experts.gate_up_proj"), std::string::npos);
  const auto model = ValueOrDie(ModelSource::Open(dense));
  done = WriteGguf(model, scratch.File("m.gguf"), {.type = "f32", .threads = 1, .progress = {}});
  ASSERT_FALSE(done.ok());
  EXPECT_EQ(done.error().code, ErrorCode::kUnsupported);
}

// Around experts in MXFP4 the rest may be quantized; the experts stay what they are.
TEST(ConvertModel, GptOssAroundItsExperts) {
  const ScratchFolder scratch;
  const std::string published = Path("testdata/models/transformers_gpt_oss_mxfp4");
  const std::string quantized = scratch.File("int8");
  Status done = Convert(published, "int8", quantized);
  ASSERT_TRUE(done.ok()) << done.error().message;
  const auto before = ValueOrDie(Checkpoint::Open(published));
  const auto after = ValueOrDie(Checkpoint::Open(quantized));
  int experts = 0;
  for (const std::string& name : before.names()) {
    if (name.find(".experts.") == std::string::npos) continue;
    ++experts;
    const TensorView& wanted = *before.Find(name);
    const TensorView* const view = after.Find(name);
    ASSERT_NE(view, nullptr) << name;
    ASSERT_EQ(view->dtype, wanted.dtype) << name;
    ASSERT_EQ(view->shape, wanted.shape) << name;
    const auto bytes = static_cast<size_t>(wanted.elements()) * DTypeBytes(wanted.dtype);
    EXPECT_EQ(std::memcmp(view->data, wanted.data, bytes), 0) << name;
  }
  EXPECT_EQ(experts, 4 * 6);  // codes, scales and biases of two matrices in each layer
  // Each folder is read as what its values are; MLX's are rounded as MLX decodes them.
  done = Convert(published, "f32", scratch.File("wide"));
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(Logits(scratch.File("wide"), WeightFormat::kF32),
            Logits(published, WeightFormat::kF32));
  done = Convert(quantized, "bf16", scratch.File("decoded"));
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(Logits(scratch.File("decoded"), WeightFormat::kF32),
            Logits(quantized, WeightFormat::kBf16));
  // One token: along many, rounding chooses other experts, which is more than a bit.
  const double error = RelativeError(Logits(quantized, WeightFormat::kF32, 1),
                                     Logits(published, WeightFormat::kF32, 1));
  EXPECT_GT(error, 0);
  EXPECT_LE(error, 0.04);  // as below
}

TEST(ConvertModel, QuantizedFoldersLoadAndAreNear) {
  const std::string source = Path("testdata/models/transformers_qwen2_f16");
  const auto wanted = Logits(source, WeightFormat::kF32);
  struct Type {
    const char* name;
    double most;
  };
  // A third above what was measured on this model of random weights: what a format loses.
  for (const Type& type :
       {Type{"int8", 0.04}, {"int4", 0.4}, {"mxfp8", 0.2}, {"mxfp4", 0.55}, {"nvfp4", 0.46}}) {
    const ScratchFolder scratch;
    const std::string out = scratch.File("out");
    const Status done = Convert(source, type.name, out);
    ASSERT_TRUE(done.ok()) << type.name << ": " << done.error().message;
    for (const auto weights : {std::optional<WeightFormat>(), std::optional(WeightFormat::kF32)}) {
      EXPECT_LE(RelativeError(Logits(out, weights), wanted), type.most) << type.name;
    }
  }
}

// Experts that lie apart, and gates that lie above ups, become stacks of one projection.
TEST(ConvertModel, QuantizedExpertsAreStacked) {
  for (const auto& [name, stack] :
       {std::pair{"transformers_qwen3_moe_bf16", "model.layers.0.mlp.switch_mlp."},
        std::pair{"transformers_gemma4_experts_bf16", "model.layers.0.experts.switch_glu."},
        std::pair{"transformers_lfm2_moe_bf16", "model.layers.1.feed_forward.switch_mlp."},
        std::pair{"transformers_granite_hybrid_moe_bf16",
                  "model.layers.0.block_sparse_moe.switch_mlp."}}) {
    const ScratchFolder scratch;
    const std::string source = Path(std::string("testdata/models/") + name);
    const std::string out = scratch.File("out");
    const Status done = Convert(source, "int8", out, uint64_t{1} << 30, 32);
    ASSERT_TRUE(done.ok()) << done.error().message;
    const auto written = ValueOrDie(Checkpoint::Open(out));
    for (const char* projection : {"gate_proj", "up_proj", "down_proj"}) {
      for (const char* part : {".weight", ".scales", ".biases"}) {
        const TensorView* const view = written.Find(stack + std::string(projection) + part);
        ASSERT_NE(view, nullptr) << stack << projection << part;
        EXPECT_EQ(view->shape.size(), 3u);
      }
    }
    for (const std::string& tensor : written.names()) {
      EXPECT_EQ(tensor.find("gate_up_proj"), std::string::npos) << tensor;
      EXPECT_EQ(tensor.find(".experts.0."), std::string::npos) << tensor;
    }
    const double error =
        RelativeError(Logits(out, WeightFormat::kF32), Logits(source, WeightFormat::kF32));
    EXPECT_LE(error, 0.15) << name;  // where rounding chooses another expert it is more than a bit
  }
}

TEST(ConvertModel, ShardsAreIndexedAndAStoppedRunGoesOn) {
  const ScratchFolder scratch;
  const std::string source = Path("testdata/models/transformers_qwen2_f16");
  const auto model = ValueOrDie(ModelSource::Open(source));
  WriteOptions options;
  options.plan.shard_bytes = 50'000;
  const std::string folder = scratch.File("out.partial");
  fs::create_directory(folder);
  ASSERT_TRUE(WriteModelFolder(model, folder, options).ok());
  const FolderPlan plan = ValueOrDie(PlanFolder(model, options.plan));
  ASSERT_GT(plan.shards.size(), 2u);
  EXPECT_TRUE(Checkpoint::Open(folder).ok());

  // As if it had been stopped after the first file; that one is not written again.
  const std::string first = folder + "/" + plan.ShardName(0);
  const std::string second = folder + "/" + plan.ShardName(1);
  const std::string contents = *ReadFile(first);
  const std::string marked = contents.substr(0, contents.size() - 1) + '\x55';
  ASSERT_TRUE(WriteFileAtomic(first, marked).ok());
  fs::remove(second);
  ASSERT_TRUE(WriteModelFolder(model, folder, options).ok());
  EXPECT_TRUE(FileExists(second));
  EXPECT_EQ(*ReadFile(first), marked);
  // Unless somebody has cut it short meanwhile.
  fs::resize_file(first, contents.size() - 8);
  ASSERT_TRUE(WriteModelFolder(model, folder, options).ok());
  EXPECT_EQ(*ReadFile(first), contents);

  // Another conversion does not go on with it.
  options.plan.dtype = DType::kF32;
  options.plan.shard_bytes = 100'000;
  ASSERT_TRUE(WriteModelFolder(model, folder, options).ok());
  const auto checkpoint = Checkpoint::Open(folder);
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->Find("model.norm.weight")->dtype, DType::kF32);
}

// Any part of a split model may have been exchanged since the run was stopped.
TEST(ConvertModel, AnotherPartOfASplitModelIsAnotherModel) {
  const ScratchFolder scratch;
  const auto part = [](const std::string& folder, int number) {
    return folder + "/gemma3_bf16-0000" + std::to_string(number) + "-of-00002.gguf";
  };
  const std::string own = scratch.File("source");
  fs::create_directory(own);
  for (int i = 1; i <= 2; ++i) fs::copy_file(part(Path("testdata/gguf"), i), part(own, i));
  const std::string folder = scratch.File("out.partial");
  fs::create_directory(folder);
  WriteOptions options;
  options.plan.shard_bytes = 50'000;
  const auto convert = [&] {
    const auto model = ValueOrDie(ModelSource::Open(part(own, 1)));
    ASSERT_TRUE(WriteModelFolder(model, folder, options).ok());
  };
  convert();
  const auto model = ValueOrDie(ModelSource::Open(part(own, 1)));
  const std::string shard = folder + "/" + ValueOrDie(PlanFolder(model, options.plan)).ShardName(0);
  const std::string contents = *ReadFile(shard);
  const std::string marked = contents.substr(0, contents.size() - 1) + '\x55';
  ASSERT_NE(marked, contents);
  for (const int changed : {1, 2}) {
    SCOPED_TRACE(changed);
    ASSERT_TRUE(WriteFileAtomic(shard, marked).ok());
    convert();
    EXPECT_EQ(*ReadFile(shard), marked);  // nothing has changed: what is complete stays
    const std::string path = part(own, changed);
    fs::last_write_time(path, fs::last_write_time(path) + std::chrono::hours(1));
    convert();
    EXPECT_EQ(*ReadFile(shard), contents);
  }
}

// What a killed run and another conversion left is not found in the folder in the end.
TEST(ConvertModel, NothingOfAStoppedRunRemains) {
  const ScratchFolder scratch;
  const std::string source = Path("testdata/models/transformers_qwen2_f16");
  const auto model = ValueOrDie(ModelSource::Open(source));
  const std::string folder = scratch.File("out.partial");
  fs::create_directory(folder);
  WriteOptions options;
  options.plan.shard_bytes = 50'000;
  ASSERT_TRUE(WriteModelFolder(model, folder, options).ok());
  options.plan.shard_bytes = uint64_t{2} << 30;
  options.kept_folder = "draft";
  for (const char* inside : {"draft", "additional_chat_templates"}) {
    fs::create_directory(folder + "/" + inside);
    ASSERT_TRUE(WriteFileAtomic(folder + "/" + inside + "/x.jinja", "x").ok());
  }
  ASSERT_TRUE(WriteModelFolder(model, folder, options).ok());
  EXPECT_TRUE(Checkpoint::Open(folder).ok());
  EXPECT_FALSE(FileExists(folder + "/model.safetensors.index.json"));
  EXPECT_FALSE(DirectoryExists(folder + "/additional_chat_templates"));
  EXPECT_TRUE(FileExists(folder + "/draft/x.jinja"));

  // Killed in the middle of a file: its temporary one is there, and it is not.
  ASSERT_TRUE(WriteFileAtomic(folder + "/model.safetensors.tmp.QyWGqS", "half").ok());
  options.kept_folder.clear();
  ASSERT_TRUE(WriteModelFolder(model, folder, options).ok());
  EXPECT_FALSE(FileExists(folder + "/model.safetensors.tmp.QyWGqS"));
  EXPECT_FALSE(DirectoryExists(folder + "/draft"));
  EXPECT_TRUE(FileExists(folder + "/model.safetensors"));
}

// Both plan the same tensors under the same file name.
TEST(ConvertModel, DecodingDoesNotGoOnWithACopy) {
  const ScratchFolder scratch;
  const auto model = ValueOrDie(ModelSource::Open(Path("testdata/models/mlx_qwen3_q4g32_bf16")));
  const std::string folder = scratch.File("out.partial");
  fs::create_directory(folder);
  WriteOptions options;
  ASSERT_TRUE(WriteModelFolder(model, folder, options).ok());
  const auto dtype = [&] {
    return ValueOrDie(Checkpoint::Open(folder)).Find("model.layers.0.mlp.up_proj.weight")->dtype;
  };
  EXPECT_EQ(dtype(), DType::kU32);
  options.plan.dtype = DType::kBf16;
  ASSERT_TRUE(WriteModelFolder(model, folder, options).ok());
  EXPECT_EQ(dtype(), DType::kBf16);
}

TEST(ConvertModel, ErrorsSayWhatToDo) {
  const ScratchFolder scratch;
  const std::string out = scratch.File("out");
  const std::string quantized = Path("testdata/models/mlx_qwen3_q4g32_bf16");
  const auto message = [](const Status& status) {
    return status.ok() ? std::string("no error") : status.error().message;
  };
  EXPECT_NE(message(Convert(quantized, "int8", out)).find("is quantized already"),
            std::string::npos);
  EXPECT_NE(message(Convert(quantized, "int9", out)).find("use int4, int8"), std::string::npos);
  EXPECT_NE(message(Convert(scratch.File("none"), "f16", out)).find("is no folder"),
            std::string::npos);
  fs::create_directory(out);
  EXPECT_NE(message(Convert(quantized, "stored", out)).find("exists; remove it"),
            std::string::npos);
  EXPECT_EQ(scratch.FileCount(), 1u);
}

}  // namespace
}  // namespace kvasir
