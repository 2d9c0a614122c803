// GGUF files written from folders are the folders' models: the same bits, the same tokens.
#include "kvasir/convert/write_gguf.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <vector>

#include "kvasir/base/file.h"
#include "kvasir/chat/template_loader.h"
#include "kvasir/convert/conversion_notes.h"
#include "kvasir/convert/convert_test_util.h"
#include "kvasir/formats/gguf.h"
#include "kvasir/formats/gguf_config.h"
#include "kvasir/formats/gguf_tokenizer.h"
#include "kvasir/formats/safetensors.h"
#include "kvasir/formats/safetensors_writer.h"
#include "kvasir/formats/test_files.h"
#include "kvasir/tokenizer/tokenizer.h"
#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

namespace fs = std::filesystem;

struct Case {
  const char* name;
  const char* source;
  const char* type;
  std::optional<WeightFormat> weights;  // of the source, to give the file's bits
};

class WriteGgufTest : public testing::TestWithParam<Case> {};

TEST_P(WriteGgufTest, SameBits) {
  const ScratchFolder scratch;
  const std::string out = scratch.File("out.gguf");
  const Status done = Write(Path(GetParam().source), GetParam().type, out);
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(scratch.FileCount(), 1u);
  EXPECT_EQ(Logits(out, {}), Logits(Path(GetParam().source), GetParam().weights));
}

INSTANTIATE_TEST_SUITE_P(
    All, WriteGgufTest,
    testing::Values(
        Case{"Qwen2F16", "testdata/models/transformers_qwen2_f16", "f16", {}},
        // Rows of queries and keys go to other places and back.
        Case{"LlamaF32", "testdata/models/public_llama_f32", "f32", {}},
        // Norms get their 1 and lose it; a window, two ropes, a scale of its own.
        Case{"GemmaBf16", "testdata/models/transformers_gemma3_sharded_bf16", "bf16", {}},
        Case{"Llama3Rope", "testdata/models/transformers_llama3_rope_bf16", "bf16", {}},
        // Of a wrapper, whose vision tower stays behind.
        Case{"Mistral3", "testdata/models/transformers_mistral3_bf16", "bf16", {}},
        // Experts apart become stacked; one layer has none.
        Case{"QwenExperts", "testdata/models/transformers_qwen3_moe_bf16", "bf16", {}},
        Case{"Gemma2", "testdata/models/transformers_gemma2_bf16", "bf16", {}},
        Case{"Gemma4Shared", "testdata/models/transformers_gemma4_shared_bf16", "bf16", {}},
        Case{"Gemma4OneProjection",
             "testdata/models/transformers_gemma4_one_projection_bf16",
             "bf16",
             {}},
        Case{"Gemma4Experts", "testdata/models/transformers_gemma4_experts_bf16", "bf16", {}},
        // A value head for each key head, so that none moves: the sums have the folder's order.
        Case{"Qwen35", "testdata/models/transformers_qwen3_5_wrapped_bf16", "bf16", {}},
        Case{"Qwen35Q8", "testdata/models/transformers_qwen3_5_wrapped_bf16", "q8_0",
             WeightFormat::kQ8},
        Case{"Qwen3Next", "testdata/models/transformers_qwen3_next_bf16", "bf16", {}},
        Case{"Ministral3", "testdata/models/transformers_ministral3_bf16", "bf16", {}},
        Case{"SmolLm3", "testdata/models/transformers_smollm3_bf16", "bf16", {}},
        Case{"Granite", "testdata/models/transformers_granite_bf16", "bf16", {}},
        // Gates and ups, one matrix there, come apart.
        Case{"GraniteDense", "testdata/models/transformers_granite_dense_bf16", "bf16", {}},
        Case{"GraniteDenseQ8", "testdata/models/transformers_granite_dense_bf16", "q8_0",
             WeightFormat::kQ8},
        Case{"GraniteMoe", "testdata/models/transformers_granite_moe_bf16", "bf16", {}},
        // Attention has biases, which block 0 has not.
        Case{"GraniteHybrid", "testdata/models/transformers_granite_hybrid_bf16", "bf16", {}},
        Case{"GraniteExperts", "testdata/models/transformers_granite_hybrid_moe_bf16", "bf16", {}},
        Case{"DeepSeekV2Lite", "testdata/models/transformers_deepseek_v2_lite_bf16", "bf16", {}},
        Case{"DeepSeekV3", "testdata/models/transformers_deepseek_v3_bf16", "bf16", {}},
        Case{"Glm4MoeLite", "testdata/models/transformers_glm4_moe_lite_bf16", "bf16", {}},
        Case{"Glm4", "testdata/models/transformers_glm4_bf16", "bf16", {}},
        Case{"Glm4Q8", "testdata/models/transformers_glm4_bf16", "q8_0", WeightFormat::kQ8},
        Case{"Glm4Moe", "testdata/models/transformers_glm4_moe_bf16", "bf16", {}},
        Case{"Lfm2", "testdata/models/transformers_lfm2_bf16", "bf16", {}},
        Case{"Lfm2Q8", "testdata/models/transformers_lfm2_bf16", "q8_0", WeightFormat::kQ8},
        Case{"Lfm2Experts", "testdata/models/transformers_lfm2_moe_bf16", "bf16", {}},
        Case{"Olmo2", "testdata/models/transformers_olmo2_bf16", "bf16", {}},
        Case{"Olmo3", "testdata/models/transformers_olmo3_bf16", "bf16", {}},
        Case{"Phi3", "testdata/models/transformers_phi3_bf16", "bf16", {}},
        // Three quarters of a head turn, by divisors of long contexts.
        Case{"Phi4Mini", "testdata/models/transformers_phi4_mini_bf16", "bf16", {}},
        Case{"Phi4MiniQ8", "testdata/models/transformers_phi4_mini_bf16", "q8_0",
             WeightFormat::kQ8},
        Case{"DemoQ8", "models/kvasir-demo", "q8_0", WeightFormat::kQ8},
        Case{"GgufAgain", "testdata/gguf/qwen2_f16.gguf", "f16", {}}),
    [](const auto& info) { return std::string(info.param.name); });

// Tensors and metadata of those that a script wrote after llama.cpp's converter.
TEST(WriteGguf, TensorsAndMetadataAreAsConvertersWriteThem) {
  const ScratchFolder scratch;
  struct Written {
    std::string source;
    std::string architecture;
    std::string file = architecture;
  };
  for (const auto& [source, architecture, file] :
       {Written{"ministral3", "mistral3"}, Written{"smollm3", "smollm3"},
        Written{"granite_dense", "granite"}, Written{"olmo3", "olmo2"},
        Written{"phi4_mini", "phi3"}, Written{"lfm2", "lfm2"}, Written{"lfm2_moe", "lfm2moe"},
        Written{"granite_hybrid_moe", "granitehybrid"}, Written{"deepseek_v3", "deepseek2"},
        Written{"glm4_moe_lite", "deepseek2", "glm4_moe_lite"}, Written{"glm4", "glm4"},
        Written{"glm4_moe", "glm4moe"}}) {
    SCOPED_TRACE(source);
    const std::string out = scratch.File(source + ".gguf");
    const Status done =
        Write(Path("testdata/models/transformers_" + source + "_bf16"), "bf16", out);
    ASSERT_TRUE(done.ok()) << done.error().message;
    const GgufFile written = ValueOrDie(GgufFile::Open(out));
    const GgufFile wanted =
        ValueOrDie(GgufFile::Open(Path("testdata/gguf/" + file + "_bf16.gguf")));
    ExpectSameTensors(written, wanted);
    EXPECT_EQ(written.names(), NamesWithoutCopies(wanted));
    int compared = 0;
    for (const auto& [key, value] : wanted.metadata().values()) {
      if (!key.starts_with(architecture + ".")) continue;
      // The script writes what converters write of models without positions, whatever a config has.
      if (key == "granitehybrid.context_length") continue;
      ++compared;
      ASSERT_TRUE(written.metadata().Has(key)) << key;
      EXPECT_TRUE(*written.metadata().Find(key) == value) << key;
    }
    EXPECT_GE(compared, 10);
  }
}

TEST(WriteGguf, StoredIsTheTypeOfMostWeights) {
  const ScratchFolder scratch;
  for (const auto& [source, type] : {std::pair{"testdata/models/transformers_qwen2_f16", "F16"},
                                     std::pair{"testdata/models/public_llama_f32", "F32"},
                                     std::pair{"testdata/gguf/llama3_rope_bf16.gguf", "BF16"}}) {
    const std::string out = scratch.File(std::string(type) + ".gguf");
    const Status done = Write(Path(source), "stored", out);
    ASSERT_TRUE(done.ok()) << done.error().message;
    EXPECT_EQ(ValueOrDie(GgufFile::Open(out)).Find("blk.0.ffn_down.weight")->type->name, type);
  }
  for (const char* source :
       {"testdata/models/mlx_qwen3_q4g32_bf16", "testdata/gguf/qwen3_q8_0.gguf"}) {
    const Status done = Write(Path(source), "stored", scratch.File("out.gguf"));
    ASSERT_FALSE(done.ok());
    EXPECT_EQ(done.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(done.error().message.find("f32, f16, bf16, q8_0 or q4_0"), std::string::npos);
  }
}

TEST(WriteGguf, Q4KeepsTheTableIn8Bits) {
  const ScratchFolder scratch;
  const std::string out = scratch.File("out.gguf");
  const Status done = Write(Path("models/kvasir-demo"), "q4_0", out);
  ASSERT_TRUE(done.ok()) << done.error().message;
  const GgufFile file = ValueOrDie(GgufFile::Open(out));
  EXPECT_EQ(file.Find("token_embd.weight")->type->name, "Q8_0");
  EXPECT_EQ(file.Find("blk.0.ffn_up.weight")->type->name, "Q4_0");
  EXPECT_EQ(file.Find("output_norm.weight")->type->name, "F32");
  const auto wanted = Logits(Path("models/kvasir-demo"), WeightFormat::kQ4);
  const auto actual = Logits(out, {});
  EXPECT_NE(actual, wanted);
  EXPECT_EQ(actual.size(), wanted.size());
}

TEST(WriteGguf, TheTokenizerComesAlong) {
  const ScratchFolder scratch;
  const std::string out = scratch.File("out.gguf");
  ASSERT_TRUE(Write(Path("models/kvasir-demo"), "q8_0", out).ok());
  const GgufFile file = ValueOrDie(GgufFile::Open(out));
  EXPECT_TRUE(file.metadata().Has("tokenizer.chat_template"));
  const auto written = ValueOrDie(Tokenizer::FromJson(*GgufTokenizerJson(file.metadata())));
  const auto original = ValueOrDie(Tokenizer::FromFile(Path("models/kvasir-demo/tokenizer.json")));
  for (const char* text : {"The ship, 1234 miles\n\n  away", "caf\u00e9 <eos> \t<pad>x", ""}) {
    EXPECT_EQ(written->Encode(text), original->Encode(text)) << text;
  }
}

// The tokenizer adds one, whether or not config.json knows its id.
TEST(WriteGguf, BosIsWhatTheTokenizerAdds) {
  for (const char* const bos : {"", R"("bos_token_id": 7, )"}) {
    const ScratchFolder scratch;
    const std::string folder = scratch.File("source");
    fs::create_directory(folder);
    for (const char* kept : {"model.safetensors", "tokenizer.json"}) {
      fs::copy_file(Path("models/kvasir-demo/") + kept, folder + "/" + kept);
    }
    std::string config = *ReadFile(Path("models/kvasir-demo/config.json"));
    const size_t at = config.find("\"bos_token_id\"");
    ASSERT_NE(at, std::string::npos);
    config.replace(at, config.find('"', config.find(',', at)) - at, bos);
    ASSERT_TRUE(WriteFileAtomic(folder + "/config.json", config).ok());
    const std::string out = scratch.File("out.gguf");
    const Status done = Write(folder, "f16", out);
    ASSERT_TRUE(done.ok()) << done.error().message;
    const GgufFile file = ValueOrDie(GgufFile::Open(out));
    const auto written = ValueOrDie(Tokenizer::FromJson(*GgufTokenizerJson(file.metadata())));
    const auto original =
        ValueOrDie(Tokenizer::FromFile(Path("models/kvasir-demo/tokenizer.json")));
    EXPECT_EQ(written->Encode("The ship"), original->Encode("The ship"));
    EXPECT_GT(written->Encode("The ship").size(),
              written->Encode("The ship", {.add_special = false}).size());
  }
}

// Of several stops the one that templates write is a file's EOS.
TEST(WriteGguf, EosIsWhatTemplatesWrite) {
  const ScratchFolder scratch;
  const std::string folder = scratch.File("source");
  fs::create_directory(folder);
  for (const char* kept : {"config.json", "model.safetensors", "tokenizer.json"}) {
    fs::copy_file(Path("models/kvasir-demo/") + kept, folder + "/" + kept);
  }
  const std::string config = R"({"eos_token": {"content": "<end_of_turn>"}, "unk_token": "<unk>"})";
  ASSERT_TRUE(WriteFileAtomic(folder + "/tokenizer_config.json", config).ok());
  const std::string out = scratch.File("out.gguf");
  const Status done = Write(folder, "f16", out);
  ASSERT_TRUE(done.ok()) << done.error().message;
  const GgufFile file = ValueOrDie(GgufFile::Open(out));
  EXPECT_EQ(*file.metadata().Int("tokenizer.ggml.eos_token_id"), 5);
  EXPECT_EQ(*file.metadata().Int("tokenizer.ggml.eot_token_id"), 1);
  EXPECT_EQ(*file.metadata().Int("tokenizer.ggml.unknown_token_id"), 3);
}

// The experts of Qwen's in the tensors that newer writers fuse them to.
std::string FusedExperts(const ScratchFolder& scratch) {
  const std::string source = Path("testdata/models/transformers_qwen3_moe_bf16");
  const std::string folder = scratch.File("fused");
  fs::create_directory(folder);
  fs::copy_file(source + "/config.json", folder + "/config.json");
  const auto stored = ValueOrDie(SafetensorsFile::Open(source + "/model.safetensors"));
  std::vector<TensorDeclaration> declared;
  std::map<std::string, std::vector<std::byte>> fused;
  const auto append = [&](const std::string& name, const TensorView& view) {
    const auto bytes = static_cast<size_t>(view.elements()) * DTypeBytes(view.dtype);
    fused[name].insert(fused[name].end(), view.data, view.data + bytes);
  };
  for (const auto& [name, tensor] : stored.tensors()) {
    constexpr std::string_view kFirst = ".experts.0.gate_proj.weight";
    if (name.find(".experts.") == std::string::npos) {
      declared.push_back({name, tensor.dtype, tensor.shape});
      append(name, tensor);
    } else if (name.ends_with(kFirst)) {
      const std::string experts = name.substr(0, name.size() - kFirst.size()) + ".experts.";
      int64_t count = 0;
      for (; stored.Find(experts + std::to_string(count) + ".gate_proj.weight"); ++count) {
        const std::string expert = experts + std::to_string(count);
        append(experts + "gate_up_proj", *stored.Find(expert + ".gate_proj.weight"));
        append(experts + "gate_up_proj", *stored.Find(expert + ".up_proj.weight"));
        append(experts + "down_proj", *stored.Find(expert + ".down_proj.weight"));
      }
      const int64_t inner = tensor.shape[0];
      const int64_t hidden = tensor.shape[1];
      declared.push_back({experts + "gate_up_proj", tensor.dtype, {count, 2 * inner, hidden}});
      declared.push_back({experts + "down_proj", tensor.dtype, {count, hidden, inner}});
    }
  }
  auto writer = ValueOrDie(SafetensorsWriter::Create(folder + "/model.safetensors", declared));
  for (const TensorDeclaration& tensor : declared) {
    EXPECT_TRUE(writer.Append(tensor.name, fused[tensor.name]).ok());
  }
  EXPECT_TRUE(writer.Finish().ok());
  return folder;
}

TEST(WriteGguf, FusedExpertsComeApart) {
  const ScratchFolder scratch;
  const std::string folder = FusedExperts(scratch);
  const auto wanted = Logits(Path("testdata/models/transformers_qwen3_moe_bf16"), {});
  ASSERT_EQ(Logits(folder, {}), wanted);
  const std::string out = scratch.File("out.gguf");
  const Status done = Write(folder, "bf16", out);
  ASSERT_TRUE(done.ok()) << done.error().message;
  EXPECT_EQ(Logits(out, {}), wanted);
  const GgufFile file = ValueOrDie(GgufFile::Open(out));
  for (const char* part : {"gate", "up", "down"}) {
    EXPECT_NE(file.Find("blk.0.ffn_" + std::string(part) + "_exps.weight"), nullptr) << part;
  }
}

// And back again.
TEST(WriteGguf, SamplingAndTheTemplateForToolsComeAlong) {
  const ScratchFolder scratch;
  const std::string folder = scratch.File("source");
  fs::create_directories(folder + "/additional_chat_templates");
  for (const char* kept : {"config.json", "model.safetensors", "tokenizer.json"}) {
    fs::copy_file(Path("models/kvasir-demo/") + kept, folder + "/" + kept);
  }
  const auto write = [&](const std::string& file, const std::string& contents) {
    ASSERT_TRUE(WriteFileAtomic(folder + "/" + file, contents).ok());
  };
  write("chat_template.jinja", "plain");
  write("additional_chat_templates/tool_use.jinja", "{{ tools }}");
  write("generation_config.json",
        R"({"temperature": 0.6, "do_sample": true, "top_p": 0.95, "repetition_penalty": 1.05,
            "top_k": 20})");
  const std::string out = scratch.File("out.gguf");
  OrDie(Write(folder, "stored", out));
  const GgufFile written = ValueOrDie(GgufFile::Open(out));
  EXPECT_EQ(*written.metadata().Text("tokenizer.chat_template"), "plain");
  EXPECT_EQ(*written.metadata().Text(kGgufToolTemplate), "{{ tools }}");
  const ModelSource back = ValueOrDie(ModelSource::Open(out));
  const Json generation =
      ValueOrDie(Json::Parse(back.FindFile("generation_config.json")->contents));
  EXPECT_EQ(generation, ValueOrDie(Json::Parse(*ReadFile(folder + "/generation_config.json"))));
  const std::string config = back.FindFile("tokenizer_config.json")->contents;
  fs::create_directory(scratch.File("back"));
  ASSERT_TRUE(WriteFileAtomic(scratch.File("back") + "/tokenizer_config.json", config).ok());
  const auto chat = ValueOrDie(ChatTemplateSet::Load(scratch.File("back")));
  EXPECT_EQ(chat.source(), "plain{{ tools }}");
  // Greedy is a temperature of 0.
  write("generation_config.json", R"({"temperature": 0.6, "do_sample": false})");
  OrDie(Write(folder, "stored", scratch.File("greedy.gguf")));
  const GgufFile greedy = ValueOrDie(GgufFile::Open(scratch.File("greedy.gguf")));
  EXPECT_EQ(ValueOrDie(GgufModelConfig(greedy)).generation.temperature, 0.0);
}

// Wherever a folder keeps it; of several the one for requests without tools.
TEST(WriteGguf, TheChatTemplateComesAlong) {
  const std::string text = "{{ messages[0].content }}!";
  const Json named = Json::Array{Json(Json::Object{{"name", "tool_use"}, {"template", "no"}}),
                                 Json(Json::Object{{"name", "default"}, {"template", text}})};
  for (const auto& [file, contents] :
       {std::pair<const char*, std::string>{"chat_template.jinja", text},
        {"chat_template.json", Json(Json::Object{{"chat_template", text}}).Dump()},
        {"tokenizer_config.json", Json(Json::Object{{"chat_template", named}}).Dump()}}) {
    const ScratchFolder scratch;
    const std::string folder = scratch.File("source");
    fs::create_directory(folder);
    for (const char* kept : {"config.json", "model.safetensors", "tokenizer.json"}) {
      fs::copy_file(Path("models/kvasir-demo/") + kept, folder + "/" + kept);
    }
    ASSERT_TRUE(WriteFileAtomic(folder + "/" + file, contents).ok());
    const std::string out = scratch.File("out.gguf");
    const Status done = Write(folder, "stored", out);
    ASSERT_TRUE(done.ok()) << done.error().message;
    const GgufFile written = ValueOrDie(GgufFile::Open(out));
    EXPECT_EQ(*written.metadata().Text("tokenizer.chat_template"), text) << file;
  }
}

// A tokenizer.json of pieces, as SentencePiece's are converted.
std::string Pieces(bool adds_space) {
  const std::string_view space = "\u2581";
  Json vocabulary = Json::Object{{"<unk>", 0}, {"<s>", 1}, {"</s>", 2}, {"<0x0A>", 3}};
  int64_t id = 4;
  for (const std::string piece : {"\u2581", "h", "e", "l", "o", "w", "r", "d", "\u00e9"}) {
    vocabulary.Set(piece, id++);
  }
  Json merges = Json::Array();
  const auto merge = [&](const std::string& left, const std::string& right) {
    if (vocabulary.Find(left + right) == nullptr) vocabulary.Set(left + right, id++);
    merges.Append(Json::Array{Json(left), Json(right)});
  };
  merge("h", "e");
  merge("l", "l");
  // One result by two ways, after it a better one by its score.
  merge("he", "l");
  merge("hel", "l");
  merge("he", "ll");
  merge("o", "r");
  merge(std::string(space), "w");
  merge(std::string(space) + "w", "or");
  merge("l", "d");
  Json::Array normalizers;
  if (adds_space) normalizers.push_back(Json::Object{{"type", "Prepend"}, {"prepend", space}});
  normalizers.push_back(Json::Object{
      {"type", "Replace"}, {"pattern", Json::Object{{"String", " "}}}, {"content", space}});
  Json::Array added;
  for (const char* const text : {"<unk>", "<s>", "</s>"}) {
    added.push_back(Json::Object{{"id", static_cast<int64_t>(added.size())},
                                 {"content", text},
                                 {"special", true},
                                 {"normalized", false}});
  }
  return Json(Json::Object{{"version", "1.0"},
                           {"added_tokens", std::move(added)},
                           {"normalizer", Json::Object{{"type", "Sequence"},
                                                       {"normalizers", std::move(normalizers)}}},
                           {"model", Json::Object{{"type", "BPE"},
                                                  {"unk_token", "<unk>"},
                                                  {"fuse_unk", true},
                                                  {"byte_fallback", true},
                                                  {"vocab", std::move(vocabulary)},
                                                  {"merges", std::move(merges)}}}})
      .Dump();
}

TEST(WriteGguf, TokenizersOfPieces) {
  struct Piecewise {
    const char* folder;
    const char* model;
    bool adds_space;
  };
  for (const Piecewise& each : {Piecewise{"public_llama_f32", "llama", true},
                                {"public_llama_f32", "llama", false},
                                {"transformers_gemma4_one_projection_bf16", "gemma4", false}}) {
    const ScratchFolder scratch;
    const std::string folder = scratch.File("model");
    fs::copy(Path("testdata/models/" + std::string(each.folder)), folder);
    const std::string json = Pieces(each.adds_space);
    ASSERT_TRUE(WriteFileAtomic(folder + "/tokenizer.json", json).ok());
    const std::string out = scratch.File("out.gguf");
    const Status done = Write(folder, "f16", out);
    ASSERT_TRUE(done.ok()) << done.error().message;
    const GgufFile file = ValueOrDie(GgufFile::Open(out));
    EXPECT_EQ(*file.metadata().Text("tokenizer.ggml.model"), each.model);
    const auto written = ValueOrDie(Tokenizer::FromJson(*GgufTokenizerJson(file.metadata())));
    const auto original = ValueOrDie(Tokenizer::FromJson(*Json::Parse(json)));
    const EncodeOptions plain = {.add_special = false, .parse_special = true};
    for (const char* text : {"hello world", "hellllo  wor", "h\u00e9llo\nold", "", "</s>held?"}) {
      EXPECT_EQ(written->Encode(text, plain), original->Encode(text, plain)) << text;
    }
    EXPECT_EQ(written->Decode(written->Encode("hello\n  world", plain)), "hello\n  world");
  }
}

// Splits a file cannot say: SentencePiece would join "el" too, which these merges never do.
TEST(WriteGguf, TokensThatWouldDifferAreRefused) {
  const ScratchFolder scratch;
  const std::string folder = scratch.File("model");
  fs::copy(Path("testdata/models/public_llama_f32"), folder);
  std::string json = Pieces(true);
  const std::string merge = R"(["l","d"])";
  ASSERT_NE(json.find(merge), std::string::npos);
  json.replace(json.find(merge), merge.size(), R"(["l","d"],["ol","d"])");
  json.replace(json.find(R"("<0x0A>":3)"), 10, R"("<0x0A>":3,"ol":60,"old":61)");
  ASSERT_TRUE(WriteFileAtomic(folder + "/tokenizer.json", json).ok());
  const Status done = Write(folder, "f16", scratch.File("out.gguf"));
  ASSERT_FALSE(done.ok());
  EXPECT_NE(done.error().message.find("tokenizer.json: a GGUF file cannot say how it makes tokens"),
            std::string::npos)
      << done.error().message;
}

// A tiny model with another config.json: `changes` member by member, of text_config if there is
// one.
std::string WithConfig(const ScratchFolder& scratch, const std::string& name,
                       const std::string& model, const char* changes) {
  const std::string source = Path("testdata/models/" + model);
  const std::string folder = scratch.File(name);
  fs::copy(source, folder);
  Json config = ValueOrDie(Json::ParseFile(source + "/config.json"));
  Json* const text = config.Find("text_config");
  const Json changed = ValueOrDie(Json::Parse(changes));
  for (const auto& [field, value] : changed.as_object()) {
    (text == nullptr ? config : *text).Set(field, value);
  }
  EXPECT_TRUE(WriteFileAtomic(folder + "/config.json", config.Dump()).ok());
  return folder;
}

// What a config says of rope, windows and scales, through a file: the same bits, and back again.
TEST(WriteGguf, SameBitsWhateverTheConfigSays) {
  struct Variant {
    const char* model;
    const char* changes;
  };
  const char* const gemma4 = "transformers_gemma4_shared_bf16";
  const Variant variants[] = {
      {"public_gemma3_f32", R"({"sliding_window": null})"},
      {"public_gemma3_f32", R"({"query_pre_attn_scalar": 168})"},
      {"public_gemma3_f32", R"({"rope_scaling": {"rope_type": "linear", "factor": 2.7}})"},
      {"public_llama_f32", R"({"rope_scaling": {"rope_type": "linear", "factor": 2.7}})"},
      {"public_llama_f32", R"({"rope_theta": 12345.7, "rms_norm_eps": 3e-6})"},
      {"transformers_gemma2_bf16", R"({"query_pre_attn_scalar": 24})"},
      {gemma4, R"({"final_logit_softcapping": null})"},
      {gemma4, R"({"rope_parameters": {"full_attention": {"rope_type": "default"}}})"},
      {gemma4,
       R"({"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 2.7}}})"},
      {gemma4, R"({"rope_parameters": {"full_attention": {"rope_type": "proportional",
                                                          "partial_rotary_factor": 1.0}}})"},
      {gemma4, R"({"rope_parameters": {"full_attention": {"rope_type": "proportional", "factor": 2,
                                                          "partial_rotary_factor": 0.5}}})"},
  };
  for (const Variant& variant : variants) {
    SCOPED_TRACE(variant.changes);
    const ScratchFolder scratch;
    const std::string folder = WithConfig(scratch, "source", variant.model, variant.changes);
    const std::string out = scratch.File("out.gguf");
    OrDie(Write(folder, "f32", out));
    const auto wanted = Logits(folder, WeightFormat::kF32);
    EXPECT_EQ(Logits(out, WeightFormat::kF32), wanted);
    const std::string again = scratch.File("again.gguf");
    OrDie(Write(out, "f32", again));
    EXPECT_EQ(Logits(again, WeightFormat::kF32), wanted);
  }
}

// Kvasir reads such files to the bit; people may want them for others.
TEST(WriteGguf, WhatOthersReadOtherwiseIsNoted) {
  struct Variant {
    const char* model;
    const char* changes;
    const char* noted;  // null: nothing
  };
  for (const Variant& variant :
       {Variant{"transformers_llama3_rope_bf16", "{}", nullptr},
        Variant{"public_qwen3_f32", "{}", nullptr},
        Variant{"transformers_gemma4_one_projection_bf16", "{}", nullptr},
        Variant{"transformers_gemma2_bf16", R"({"query_pre_attn_scalar": 16})", nullptr},
        Variant{"transformers_gemma2_bf16", "{}", "query_pre_attn_scalar"},
        Variant{"transformers_qwen3_moe_bf16", "{}", "no experts"},
        Variant{"transformers_phi3_bf16", "{}", "sliding_window"},
        Variant{"transformers_olmo2_bf16", R"({"attention_bias": true})", "attention_bias"},
        Variant{"transformers_gemma4_shared_bf16", "{}", "a sliding and a full one"},
        Variant{"public_llama_f32", R"({"rope_scaling": {"rope_type": "yarn", "factor": 4,
                "original_max_position_embeddings": 64, "beta_fast": 16}})",
                "beta_fast"}}) {
    SCOPED_TRACE(std::string(variant.model) + " " + variant.changes);
    const ScratchFolder scratch;
    const auto source = ValueOrDie(
        ModelSource::Open(WithConfig(scratch, "source", variant.model, variant.changes)));
    const auto notes = ConversionNotes(source, {.is_gguf = true, .is_stored = true});
    ASSERT_EQ(notes.size(), variant.noted == nullptr ? 0u : 1u);
    if (variant.noted == nullptr) continue;
    EXPECT_NE(notes[0].find(variant.noted), std::string::npos) << notes[0];
    EXPECT_TRUE(ConversionNotes(source, {.is_gguf = false, .is_stored = true}).empty());
  }
}

TEST(WriteGguf, WhatKinOfLlamaOthersReadOtherwiseIsNoted) {
  const auto notes = [](const char* model, const char* changes) {
    const ScratchFolder scratch;
    const auto source = ValueOrDie(ModelSource::Open(
        WithConfig(scratch, "source", std::string("transformers_") + model + "_bf16", changes)));
    std::string all;
    for (const std::string& note : ConversionNotes(source, {.is_gguf = true, .is_stored = true})) {
      all += note + "\n";
    }
    return all;
  };
  EXPECT_EQ(notes("olmo2", "{}"), "");
  EXPECT_NE(notes("olmo2", R"({"tie_word_embeddings": true})").find("is its embedding"),
            std::string::npos);
  EXPECT_EQ(notes("phi4_mini", "{}"), "");
  EXPECT_NE(notes("phi3", R"({"head_dim": 32})").find("head_dim"), std::string::npos);
}

// What a folder says of factors and what does not turn, a file says as well, and a folder of that.
TEST(WriteGguf, FactorsAndStillHeadsComeAlong) {
  struct Variant {
    const char* model;
    const char* changes;
  };
  for (const Variant& variant :
       {Variant{"granite_dense", R"({"position_embedding_type": "nope"})"},
        Variant{"ministral3", R"({"rope_parameters": {"rope_type": "yarn", "factor": 16.0,
                "rope_theta": 1e6, "original_max_position_embeddings": 20,
                "llama_4_scaling_beta": 0.1}})"},
        Variant{"ministral3", R"({"rope_parameters": {"rope_type": "default"}})"},
        Variant{"phi4_mini", R"({"max_position_embeddings": 128,
                "original_max_position_embeddings": 128})"},
        Variant{"phi4_mini", R"({"max_position_embeddings": 1024})"}}) {
    SCOPED_TRACE(std::string(variant.model) + " " + variant.changes);
    const ScratchFolder scratch;
    const std::string name = std::string("transformers_") + variant.model + "_bf16";
    const std::string source = WithConfig(scratch, "source", name, variant.changes);
    const std::string file = scratch.File("out.gguf");
    Status done = Write(source, "bf16", file);
    ASSERT_TRUE(done.ok()) << done.error().message;
    const std::string folder = scratch.File("folder");
    done = Convert(file, "stored", folder);
    ASSERT_TRUE(done.ok()) << done.error().message;
    const std::vector<float> wanted = Logits(source, {});
    EXPECT_EQ(Logits(file, {}), wanted);
    EXPECT_EQ(Logits(folder, {}), wanted);
    EXPECT_NE(wanted, Logits(Path("testdata/models/" + name), {}));
  }
}

TEST(WriteGguf, WhatNoFileCanSayIsRefused) {
  struct Variant {
    const char* model;
    const char* changes;
    const char* named;
  };
  for (const Variant& variant :
       {Variant{
            "public_gemma3_f32",
            R"({"rope_parameters": {"sliding_attention": {"rope_type": "linear", "factor": 4}}})",
            "'linear' of sliding layers"},
        Variant{"transformers_gemma4_shared_bf16",
                R"({"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 4}}})",
                "'yarn' has no place"},
        Variant{"transformers_gemma2_bf16", R"({"hidden_activation": "silu"})", "activation"},
        Variant{"transformers_smollm3_bf16", R"({"no_rope_layers": [1, 1, 0, 1, 1]})",
                "layer 2 (no_rope_layers"},
        Variant{"public_llama_f32", R"({"rope_scaling": {"rope_type": "longrope",
                "short_factor": [1, 1, 1, 1, 1, 1, 1, 1], "long_factor": [1, 1, 1, 1, 1, 1, 1, 1]}})",
                "'longrope' is not written"},
        Variant{"public_llama_f32", R"({"hidden_act": "gelu_pytorch_tanh"})", "activation"},
        Variant{"transformers_lfm2_conv_bias_bf16", "{}", "'conv_bias' is true"},
        Variant{"transformers_lfm2_moe_bf16", R"({"routed_scaling_factor": 2.0})",
                "routed_scaling_factor"},
        Variant{"transformers_gemma2_bf16",
                R"({"rope_parameters": {"full_attention": {"rope_theta": 1e6},
                                        "sliding_attention": {"rope_theta": 1e4}}})",
                "rope of sliding layers"},
        Variant{"transformers_gemma2_bf16", R"({"layer_types": ["full_attention", "full_attention",
                "full_attention", "full_attention"]})",
                "no layer slides"},
        Variant{"transformers_gemma2_bf16", R"({"attn_logit_softcapping": null})",
                "softcapping of null"},
        Variant{"transformers_gemma2_bf16", R"({"final_logit_softcapping": null})",
                "softcapping of null"}}) {
    const ScratchFolder scratch;
    const std::string folder = WithConfig(scratch, "source", variant.model, variant.changes);
    const Status done = Write(folder, "f32", scratch.File("out.gguf"));
    ASSERT_FALSE(done.ok()) << variant.changes;
    EXPECT_EQ(done.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(done.error().message.find(variant.named), std::string::npos) << done.error().message;
    EXPECT_FALSE(FileExists(scratch.File("out.gguf")));
  }
}

TEST(WriteGguf, ErrorsSayWhatToDo) {
  const ScratchFolder scratch;
  const std::string out = scratch.File("out.gguf");
  const auto message = [](const Status& status) {
    return status.ok() ? std::string("no error") : status.error().message;
  };
  const std::string demo = Path("models/kvasir-demo");
  EXPECT_NE(message(Write(demo, "int8", out)).find("use f32, f16, bf16"), std::string::npos);
  EXPECT_EQ(scratch.FileCount(), 0u);
  scratch.Write("out.gguf", "mine");
  EXPECT_NE(message(Write(demo, "f16", out)).find("exists; remove it"), std::string::npos);
  EXPECT_EQ(*ReadFile(out), "mine");
}

}  // namespace
}  // namespace kvasir
