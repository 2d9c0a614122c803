// Finding templates and special tokens in a model folder.
#include "kvasir/chat/template_loader.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "kvasir/base/file.h"

namespace kvasir {
namespace {

class TemplateLoaderTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = ::testing::TempDir() + "kvasir_template_loader_" + info->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_ + "/additional_chat_templates");
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) {
    ASSERT_TRUE(WriteFileAtomic(folder_ + "/" + name, text).ok());
  }

  std::string Render(const std::string& variables) {
    const auto set = ChatTemplateSet::Load(folder_);
    if (!set.ok()) return "error: " + set.error().message;
    const auto result = set->Render(*Json::Parse(variables));
    return result.ok() ? Concatenate(*result) : "error: " + result.error().message;
  }

  std::string LoadError() {
    const auto set = ChatTemplateSet::Load(folder_);
    return set.ok() ? "no error" : set.error().message;
  }

  std::string folder_;
};

TEST_F(TemplateLoaderTest, NoTemplateIsNotFound) {
  const auto set = ChatTemplateSet::Load(folder_);
  ASSERT_FALSE(set.ok());
  EXPECT_EQ(set.error().code, ErrorCode::kNotFound);
  EXPECT_NE(set.error().message.find("no chat template"), std::string::npos);
}

TEST_F(TemplateLoaderTest, JinjaFileWins) {
  Write("tokenizer_config.json", R"({"chat_template": "config", "eos_token": "</s>"})");
  EXPECT_EQ(Render("{}"), "config");
  Write("chat_template.json", R"({"chat_template": "json"})");
  EXPECT_EQ(Render("{}"), "json");
  Write("chat_template.jinja", "jinja{{ eos_token }}");
  EXPECT_EQ(Render("{}"), "jinja</s>");
}

TEST_F(TemplateLoaderTest, ToolUseIsChosenWhenToolsAreGiven) {
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "plain"},
      {"name": "tool_use", "template": "tools"}, {"name": "rag", "template": "{% broken"}]})");
  EXPECT_EQ(Render("{}"), "plain");
  EXPECT_EQ(Render(R"({"tools": null})"), "plain");
  EXPECT_EQ(Render(R"({"tools": [{}]})"), "tools");
}

TEST_F(TemplateLoaderTest, ToolUseMayBeAFile) {
  Write("chat_template.jinja", "plain");
  Write("additional_chat_templates/tool_use.jinja", "tools");
  EXPECT_EQ(Render("{}"), "plain");
  EXPECT_EQ(Render(R"({"tools": []})"), "tools");
}

TEST_F(TemplateLoaderTest, SpecialTokensAreStringsOrObjects) {
  Write("chat_template.jinja", "{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ unk_token }}");
  Write("tokenizer_config.json",
        R"({"bos_token": {"content": "<s>", "special": true}, "eos_token": "</s>",
            "pad_token": null})");
  Write("special_tokens_map.json", R"({"eos_token": "other", "unk_token": "<unk>"})");
  EXPECT_EQ(Render("{}"), "<s></s><unk>");
}

TEST_F(TemplateLoaderTest, ARequestCannotBringSpecialTokens) {
  Write("chat_template.jinja", "{{ bos_token }}|{{ eos_token }}|{{ x }}");
  Write("tokenizer_config.json", R"({"bos_token": "<s>"})");
  EXPECT_EQ(Render(R"({"bos_token": "evil", "eos_token": "evil", "x": 1})"), "<s>||1");
}

TEST_F(TemplateLoaderTest, ErrorsNameFileAndField) {
  Write("tokenizer_config.json", R"({"chat_template": 3})");
  EXPECT_EQ(LoadError(), folder_ +
                             "/tokenizer_config.json: field 'chat_template' must be a string "
                             "or a list, not integer");
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "rag", "template": ""}]})");
  EXPECT_EQ(LoadError(), folder_ +
                             "/tokenizer_config.json: field 'chat_template' has no template "
                             "named 'default'");
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "default"}]})");
  EXPECT_NE(LoadError().find("tokenizer_config.json: field 'chat_template': field 'template'"),
            std::string::npos);
  Write("tokenizer_config.json", R"({"chat_template": "x", "bos_token": 5})");
  EXPECT_NE(LoadError().find("tokenizer_config.json: field 'bos_token'"), std::string::npos);
  Write("tokenizer_config.json", "[]");
  EXPECT_NE(LoadError().find("tokenizer_config.json: must hold a JSON object"), std::string::npos);
  Write("tokenizer_config.json", R"({"chat_template": "a\n{% if %}"})");
  EXPECT_NE(LoadError().find("tokenizer_config.json:chat_template:2: "), std::string::npos);
}

}  // namespace
}  // namespace kvasir
