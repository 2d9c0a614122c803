// A packaged folder: complete, atomic, and it speaks as its Modelfile says.
#include "kvasir/convert/package.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "kvasir/engine/draft_source.h"
#include "kvasir/engine/model_bundle.h"
#include "kvasir/formats/checkpoint.h"
#include "kvasir/formats/model_config.h"
#include "kvasir/formats/package_file.h"
#include "kvasir/formats/test_files.h"

namespace kvasir {
namespace {

namespace fs = std::filesystem;

const std::string kModel = std::string(KVASIR_SOURCE_DIR) + "/models/kvasir-demo";
const std::string kDraft = std::string(KVASIR_SOURCE_DIR) + "/models/kvasir-demo-draft";

PackageOptions Options(const ScratchFolder& scratch) {
  PackageOptions options;
  options.file.from = kModel;
  options.output = scratch.File("packed");
  options.threads = 2;
  return options;
}

std::string Message(const Status& status) {
  return status.ok() ? "no error" : status.error().message;
}

TEST(Package, SpeaksAsItsModelfileSays) {
  const ScratchFolder scratch;
  PackageOptions options = Options(scratch);
  options.file.draft = kDraft;
  options.file.system = "You are brief.";
  options.file.parameters = {{"temperature", "0.25"}, {"top_k", "7"}};
  options.file.chat_template = "{% for m in messages %}[{{ m.role }}:{{ m.content }}]{% endfor %}";
  options.quantize = "int8";
  options.quantize_draft = "int4";
  const Status created = CreatePackage(options);
  ASSERT_TRUE(created.ok()) << created.error().message;
  EXPECT_EQ(scratch.FileCount(), 1u);

  BundleOptions bundle_options;
  bundle_options.kv_budget_bytes = size_t{64} << 20;
  auto bundle = ModelBundle::Load(options.output, bundle_options);
  ASSERT_TRUE(bundle.ok()) << bundle.error().message;
  EXPECT_EQ((*bundle)->package().draft, "draft");
  EXPECT_EQ((*bundle)->package().weights, "int8");
  EXPECT_EQ((*bundle)->config().generation.temperature, 0.25);
  EXPECT_EQ((*bundle)->config().generation.top_k, 7);
  const auto text = [&](const char* role) {
    const auto segments =
        (*bundle)->ChatText(Json::Array{Json(Json::Object{{"role", role}, {"content", "hi"}})});
    std::string all;
    for (const TextSegment& segment : *segments) all += segment.text;
    return all;
  };
  EXPECT_EQ(text("user"), "[system:You are brief.][user:hi]");
  EXPECT_EQ(text("system"), "[system:hi]");

  auto draft = ModelBundle::Load(options.output + "/draft", bundle_options);
  ASSERT_TRUE(draft.ok()) << draft.error().message;
  EXPECT_TRUE((*draft)->config().quantization.mlx.has_value());
}

TEST(Package, AnAssistantIsItsModelsDraft) {
  const std::string data = std::string(KVASIR_SOURCE_DIR) + "/testdata/";
  const ScratchFolder scratch;
  PackageOptions options = Options(scratch);
  options.file.from = data + "models/transformers_gemma4_shared_bf16";
  options.file.draft = data + "assistants/gemma4_shared_ordered";
  options.quantize_draft = "int8";
  const Status created = CreatePackage(options);
  ASSERT_TRUE(created.ok()) << created.error().message;

  BundleOptions bundle_options;
  bundle_options.kv_budget_bytes = size_t{64} << 20;
  auto bundle = ModelBundle::Load(options.output, bundle_options);
  ASSERT_TRUE(bundle.ok()) << bundle.error().message;
  const auto source = DraftSource::Load(
      {DraftKind::kModel, options.output + "/" + (*bundle)->package().draft, bundle_options},
      **bundle);
  ASSERT_TRUE(source.ok()) << source.error().message;
  EXPECT_EQ((*source)->kind(), DraftKind::kMtp);
  EXPECT_EQ((*source)->NewDrafter(nullptr)->kind(), "mtp");

  // Another model's cache is not what it reads.
  options.output = scratch.File("other");
  options.file.from = data + "models/transformers_gemma4_one_projection_bf16";
  const Status other = CreatePackage(options);
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(Message(other).find("the assistant is for another model: its number of key and value "
                                "heads of sliding layers is 1, the model's 2"),
            std::string::npos)
      << Message(other);
}

TEST(Package, RefusesWhatCannotWorkBeforeItWrites) {
  const ScratchFolder scratch;
  struct Case {
    const char* message;
    std::function<void(PackageOptions*)> change;
  };
  const Case cases[] = {
      {"DRAFT and FROM are both", [](PackageOptions* o) { o->file.draft = kModel + "/."; }},
      {"is no folder", [](PackageOptions* o) { o->file.from = "/no/such/folder"; }},
      {"is no folder", [](PackageOptions* o) { o->file.draft = "/no/such/folder"; }},
      {"quantization type 'int7'", [](PackageOptions* o) { o->quantize = "int7"; }},
      {"there is none; add --draft", [](PackageOptions* o) { o->quantize_draft = "int4"; }},
      {"PARAMETER 'mirostat' is unknown",
       [](PackageOptions* o) {
         o->file.parameters = {{"mirostat", "1"}};
       }},
      {"PARAMETER top_p is '1.5'",
       [](PackageOptions* o) {
         o->file.parameters = {{"top_p", "1.5"}};
       }},
      {"PARAMETER top_k is '1.5', it must be a whole",
       [](PackageOptions* o) {
         o->file.parameters = {{"top_k", "1.5"}};
       }},
      {"is no single token",
       [](PackageOptions* o) {
         o->file.parameters = {{"stop", "no such token at all"}};
       }},
      {"templates are Jinja", [](PackageOptions* o) { o->file.chat_template = "{% if %}"; }},
      // What ollama's templates look like can be read as Jinja.
      {"'if' is undefined (templates are Jinja",
       [](PackageOptions* o) { o->file.chat_template = "{{ if .System }}{{ end }}"; }},
      {"does not show what a user says",
       [](PackageOptions* o) { o->file.chat_template = "{{ Prompt }}"; }},
      {"no tools, no talk (templates",
       [](PackageOptions* o) {
         o->file.chat_template = "{{ raise_exception('no tools, no talk') }}";
       }},
      {"would be taken for a GGUF file",
       [](PackageOptions* o) { o->output = o->output + ".gguf/"; }},
      {"a draft needs the same tokens",
       [](PackageOptions* o) {
         o->file.draft = std::string(KVASIR_SOURCE_DIR) + "/testdata/models/transformers_qwen2_f16";
       }},
  };
  for (const Case& bad : cases) {
    PackageOptions options = Options(scratch);
    bad.change(&options);
    EXPECT_NE(Message(CreatePackage(options)).find(bad.message), std::string::npos)
        << bad.message << ": " << Message(CreatePackage(options));
    EXPECT_EQ(scratch.FileCount(), 0u) << bad.message;
  }
}

TEST(Package, APackageIsAModelLikeOthers) {
  const ScratchFolder scratch;
  PackageOptions options = Options(scratch);
  const std::string first = options.output;
  options.file.draft = kDraft;
  options.file.system = "You are brief.";
  options.quantize = "int8";
  ASSERT_TRUE(CreatePackage(options).ok());

  // FROM a package: it stays what it was where the Modelfile does not say otherwise.
  options.file = {.from = first, .draft = {}, .parameters = {}, .chat_template = {}, .system = {}};
  options.quantize = "";
  options.quantize_draft = "int4";
  options.output = scratch.File("second");
  Status created = CreatePackage(options);
  ASSERT_TRUE(created.ok()) << created.error().message;
  auto package = PackageFile::Load(options.output);
  ASSERT_TRUE(package.ok()) << package.error().message;
  EXPECT_EQ(package->system, "You are brief.");
  EXPECT_EQ(package->weights, "int8");
  EXPECT_EQ(package->draft, "draft");
  EXPECT_EQ(package->draft_weights, "int4");

  // Its draft, too, is what it was.
  options.file = {
      .from = options.output, .draft = {}, .parameters = {}, .chat_template = {}, .system = ""};
  options.quantize_draft = "";
  options.output = scratch.File("again");
  created = CreatePackage(options);
  ASSERT_TRUE(created.ok()) << created.error().message;
  package = PackageFile::Load(options.output);
  ASSERT_TRUE(package.ok()) << package.error().message;
  EXPECT_EQ(package->system, "");  // taken away
  EXPECT_EQ(package->draft_weights, "int4");

  // As a draft it comes without its own.
  options.file = {
      .from = kDraft, .draft = first, .parameters = {}, .chat_template = {}, .system = {}};
  options.quantize_draft = "";
  options.output = scratch.File("third");
  created = CreatePackage(options);
  ASSERT_TRUE(created.ok()) << created.error().message;
  package = PackageFile::Load(options.output + "/draft");
  ASSERT_TRUE(package.ok()) << package.error().message;
  EXPECT_EQ(package->draft, "");
  EXPECT_EQ(package->system, "You are brief.");
  EXPECT_EQ(PackageFile::Load(options.output)->draft_weights, "int8");
}

TEST(Package, GoesOnAfterAnotherRunWasStopped) {
  const ScratchFolder scratch;
  const PackageOptions options = Options(scratch);
  const std::string partial = options.output + ".partial";
  fs::create_directories(partial + "/draft");
  for (const char* name : {"/conversion.json", "/chat_template.jinja", "/draft/conversion.json",
                           "/draft/model.safetensors", "/model.safetensors.tmp.123456"}) {
    ASSERT_TRUE(WriteFileAtomic(partial + name, "{}").ok());
  }
  const Status created = CreatePackage(options);
  ASSERT_TRUE(created.ok()) << created.error().message;
  EXPECT_FALSE(DirectoryExists(options.output + "/draft"));
  for (const char* name :
       {"/conversion.json", "/chat_template.jinja", "/model.safetensors.tmp.123456"}) {
    EXPECT_FALSE(FileExists(options.output + name)) << name;
  }
  EXPECT_EQ(scratch.FileCount(), 1u);
}

// Configs of models with images say in text_config what ends an answer.
TEST(Package, AStopIsOneMoreEndNotTheOnlyOne) {
  const ScratchFolder scratch;
  PackageOptions options = Options(scratch);
  options.file.from = scratch.File("nested");
  fs::copy(kModel, options.file.from);
  fs::remove(options.file.from + "/generation_config.json");
  Json config = *Json::ParseFile(kModel + "/config.json");
  const Json end = *config.Find("eos_token_id");
  config.Set("eos_token_id", Json());
  config.Set("text_config", Json::Object{{"eos_token_id", end}});
  ASSERT_TRUE(WriteFileAtomic(options.file.from + "/config.json", config.Dump()).ok());
  const auto before = ModelConfig::Load(options.file.from);
  ASSERT_TRUE(before.ok()) << before.error().message;
  ASSERT_FALSE(before->eos_token_ids.empty());

  options.file.parameters = {{"stop", "a"}, {"stop", "b"}, {"stop", "a"}};
  const Status created = CreatePackage(options);
  ASSERT_TRUE(created.ok()) << created.error().message;
  const std::vector<Token> ends = ModelConfig::Load(options.output)->eos_token_ids;
  ASSERT_EQ(ends.size(), before->eos_token_ids.size() + 2);
  EXPECT_TRUE(std::equal(before->eos_token_ids.begin(), before->eos_token_ids.end(), ends.begin()));
}

// A config.json alone names the end of texts; what ends turns, the chat template says.
TEST(Package, AStopLeavesTheEndsOfTurns) {
  const ScratchFolder scratch;
  PackageOptions options = Options(scratch);
  options.file.from = scratch.File("bare");
  fs::copy(kModel, options.file.from);
  fs::remove(options.file.from + "/generation_config.json");
  Json config = *Json::ParseFile(kModel + "/config.json");
  config.Set("eos_token_id", int64_t{1});
  ASSERT_TRUE(WriteFileAtomic(options.file.from + "/config.json", config.Dump()).ok());
  options.file.parameters = {{"stop", "a"}};
  const Status created = CreatePackage(options);
  ASSERT_TRUE(created.ok()) << created.error().message;
  BundleOptions bundle_options;
  bundle_options.kv_budget_bytes = size_t{64} << 20;
  const auto stops = [&](const std::string& folder) {
    return (*ModelBundle::Load(folder, bundle_options))->stop_tokens();
  };
  std::vector<Token> wanted = stops(options.file.from);
  ASSERT_EQ(wanted.size(), 2u);
  auto actual = stops(options.output);
  ASSERT_EQ(actual.size(), 3u);
  for (const Token stop : wanted) {
    EXPECT_EQ(std::count(actual.begin(), actual.end(), stop), 1) << stop;
  }
}

// What a folder cannot hold as it is, is said.
TEST(Package, SaysWhatBecomesOfGgufFiles) {
  const ScratchFolder scratch;
  PackageOptions options = Options(scratch);
  options.file.from = std::string(KVASIR_SOURCE_DIR) + "/testdata/gguf/qwen3_q8_0.gguf";
  std::string logged;
  options.log = [&](LogLevel, std::string_view line) { logged.append(line); };
  const Status created = CreatePackage(options);
  ASSERT_TRUE(created.ok()) << created.error().message;
  EXPECT_NE(logged.find("written as f16, rounded"), std::string::npos) << logged;
  EXPECT_EQ(PackageFile::Load(options.output)->weights, "f16");
}

// As Gemma 2's template does.
TEST(Package, ASystemMessageThatTheTemplateRefusesIsRefused) {
  const ScratchFolder scratch;
  PackageOptions options = Options(scratch);
  options.file.from = scratch.File("model");
  fs::copy(kModel, options.file.from);
  const std::string chat =
      "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
      "{{ messages[0].content }}";
  ASSERT_TRUE(WriteFileAtomic(options.file.from + "/chat_template.jinja", chat).ok());
  options.file.system = "You are brief.";
  const std::string message = Message(CreatePackage(options));
  EXPECT_NE(message.find("SYSTEM does not go with the model's chat template"), std::string::npos)
      << message;
  EXPECT_NE(message.find("no system role; leave SYSTEM out"), std::string::npos) << message;
  options.file.system = "";
  EXPECT_EQ(Message(CreatePackage(options)), "no error");
}

TEST(Package, RefusesModelsThatCouldNotBeLoaded) {
  const ScratchFolder scratch;
  PackageOptions options = Options(scratch);
  const std::string broken = scratch.File("broken");
  fs::copy(kModel, broken);
  Json config = *Json::ParseFile(kModel + "/config.json");
  config.Set("intermediate_size", *config.GetInt("intermediate_size") + 64);
  ASSERT_TRUE(WriteFileAtomic(broken + "/config.json", config.Dump()).ok());
  for (const bool is_draft : {false, true}) {
    options.file.from = is_draft ? kModel : broken;
    options.file.draft = is_draft ? broken : "";
    const std::string message = Message(CreatePackage(options));
    EXPECT_NE(message.find(broken), std::string::npos) << message;
    EXPECT_NE(message.find("the model needs"), std::string::npos) << message;
  }
  config.Set("architectures", Json::Array{Json("BertModel")});
  config.Set("model_type", "bert");
  ASSERT_TRUE(WriteFileAtomic(broken + "/config.json", config.Dump()).ok());
  options.file.from = broken;
  options.file.draft = "";
  EXPECT_NE(Message(CreatePackage(options)).find("BertModel"), std::string::npos)
      << Message(CreatePackage(options));
  EXPECT_EQ(scratch.FileCount(), 1u);
}

TEST(Package, NeverWritesOverAnything) {
  const ScratchFolder scratch;
  const PackageOptions options = Options(scratch);
  ASSERT_TRUE(CreatePackage(options).ok());
  const std::string config = *ReadFile(options.output + "/config.json");
  EXPECT_NE(Message(CreatePackage(options)).find("exists; remove it"), std::string::npos);
  EXPECT_EQ(*ReadFile(options.output + "/config.json"), config);
}

}  // namespace
}  // namespace kvasir
