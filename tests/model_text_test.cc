// What a model's files say of its text, however they are kept.
#include "kvasir/engine/model_text.h"
#include "kvasir/engine/chat_turns.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "kvasir/formats/gguf.h"
#include "kvasir/formats/test_files.h"
#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

namespace fs = std::filesystem;

ModelText TextOf(const std::string& path) {
  return ValueOrDie(ModelText::Load(path, ValueOrDie(LoadModelConfig(path))));
}

// A chat model whose config.json names only the end of a text.
TEST(ModelTextTest, TurnsEndWhereTheChatTemplateSays) {
  const ScratchFolder scratch;
  const std::string demo = TinyModel::Folder("models/kvasir-demo");
  for (const char* kept : {"tokenizer.json", "tokenizer_config.json"}) {
    fs::copy_file(demo + "/" + kept, scratch.File(kept));
  }
  Json config = ValueOrDie(Json::ParseFile(demo + "/config.json"));
  config.Set("eos_token_id", 1);
  scratch.Write("config.json", config.Dump());
  const ModelText text = TextOf(scratch.path());
  const Token end = *text.tokenizer->TokenToId("<end_of_turn>");
  ASSERT_NE(end, 1);
  const auto stops = [&](const ModelText& of) {
    return std::count(of.stop_tokens.begin(), of.stop_tokens.end(), end);
  };
  EXPECT_EQ(stops(text), 1);
  // Who says it himself is believed, and a token that the template never writes is none.
  scratch.Write("generation_config.json", R"({"eos_token_id": 1})");
  EXPECT_EQ(stops(TextOf(scratch.path())), 0);
  scratch.Write("generation_config.json", "{}");
  scratch.Write("chat_template.jinja", "{{ messages[0].content }}");
  EXPECT_EQ(stops(TextOf(scratch.path())), 0);
}

// What files of before May 2024 do not say.
TEST(ModelTextTest, AMissingPreTokenizerIsAWarning) {
  const ScratchFolder scratch;
  const std::string path = TinyModel::Folder("testdata/gguf/qwen2_f16.gguf");
  const auto warnings = [](const std::string& file) {
    std::string all;
    const auto text =
        ModelText::Load(file, ValueOrDie(LoadModelConfig(file)),
                        [&](LogLevel, std::string_view line) { all.append(line).append("\n"); });
    EXPECT_TRUE(text.ok() && text->tokenizer != nullptr);
    return all;
  };
  EXPECT_EQ(warnings(path), "");
  std::string bytes = ValueOrDie(ReadFile(path));
  const size_t at = bytes.find("tokenizer.ggml.pre");
  ASSERT_NE(at, bytes.npos);
  bytes.replace(at, 18, "tokenizer.ggml.prX");
  EXPECT_NE(warnings(scratch.Write("old.gguf", bytes)).find("names no pre-tokenizer"),
            std::string::npos);
}

// What a chat template takes, by its text.
ChatTurns TurnsOf(const std::string& chat_template) {
  const ScratchFolder scratch;
  const std::string demo = TinyModel::Folder("models/kvasir-demo");
  for (const char* kept : {"config.json", "tokenizer.json", "tokenizer_config.json"}) {
    fs::copy_file(demo + "/" + kept, scratch.File(kept));
  }
  scratch.Write("chat_template.jinja", chat_template);
  return ChatTurns::Of(*TextOf(scratch.path()).chat);
}

// Gemma 2's refuses a system message, others leave it out.
TEST(ModelTextTest, SystemMessagesThatATemplateDoesNotHave) {
  const auto takes_system = [](const std::string& text) { return TurnsOf(text).takes_system; };
  const std::string all = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
  EXPECT_TRUE(takes_system(all));
  EXPECT_FALSE(takes_system(
      "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + all));
  EXPECT_FALSE(
      takes_system("{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}"));
  // What refuses everything refuses no system message.
  EXPECT_TRUE(takes_system("{{ raise_exception('nothing') }}"));

  const auto first_turn = [](const char* messages) {
    return ChatTurns{.takes_system = false}.Apply(ValueOrDie(Json::Parse(messages))).Dump();
  };
  EXPECT_EQ(first_turn(R"([{"role": "system", "content": "s"}, {"role": "user", "content": "u"},
                           {"role": "assistant", "content": "a"}])"),
            R"([{"role":"user","content":"s\n\nu"},{"role":"assistant","content":"a"}])");
  EXPECT_EQ(first_turn(R"([{"role": "system", "content": "s"},
                           {"role": "user", "content": [{"type": "text", "text": "u"}]}])"),
            R"([{"role":"user","content":[{"type":"text","text":"s\n\n"},)"
            R"({"type":"text","text":"u"}]}])");
  EXPECT_EQ(first_turn(R"([{"role": "system", "content": "s"}])"),
            R"([{"role":"user","content":"s"}])");
}

// Of Qwen3.5, Gemma, Mistral: a system message first or never. Agents send them at any time.
TEST(ModelTextTest, SystemMessagesThatComeLate) {
  const auto takes_late = [](const std::string& text) { return TurnsOf(text).takes_late_system; };
  EXPECT_TRUE(takes_late("{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"));
  EXPECT_FALSE(takes_late(
      "{% for m in messages %}{% if m.role == 'system' and not loop.first %}"
      "{{ raise_exception('first') }}{% endif %}<{{ m.role }}>{{ m.content }}{% endfor %}"));
  EXPECT_FALSE(takes_late(
      "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endfor %}"));
  // All of them at the front, or the last alone.
  EXPECT_FALSE(takes_late(
      "{% for m in messages if m.role == 'system' %}{{ m.content }}{% endfor %}"
      "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endfor %}"));
  EXPECT_FALSE(takes_late(
      "{% set ns = namespace(system='') %}{% for m in messages if m.role == 'system' %}"
      "{% set ns.system = m.content %}{% endfor %}{{ ns.system }}"
      "{% for m in messages if m.role != 'system' %}<{{ m.role }}>{{ m.content }}{% endfor %}"));

  const auto in_turns = [](const char* messages) {
    return ChatTurns{.takes_late_system = false}.Apply(ValueOrDie(Json::Parse(messages))).Dump();
  };
  EXPECT_EQ(in_turns(R"([{"role":"system","content":"a"},{"role":"developer","content":"b"},
                         {"role":"user","content":"c"},{"role":"system","content":"d"},
                         {"role":"assistant","content":"e"},{"role":"system","content":"f"},
                         {"role":"user","content":"g"},{"role":"user","content":"h"},
                         {"role":"assistant","content":"i"},{"role":"user","content":"j"},
                         {"role":"user","content":"k"}])"),
            R"([{"role":"system","content":"a\n\nb"},{"role":"user","content":"c\n\nd"},)"
            R"({"role":"assistant","content":"e"},{"role":"user","content":"f\n\ng\n\nh"},)"
            R"({"role":"assistant","content":"i"},{"role":"user","content":"j"},)"
            R"({"role":"user","content":"k"}])");
  // Behind results of tools it is a turn of its own; parts stay parts.
  EXPECT_EQ(in_turns(R"([{"role":"user","content":[{"type":"text","text":"u"}]},
                         {"role":"tool","content":"1"},{"role":"system","content":"s"}])"),
            R"([{"role":"user","content":[{"type":"text","text":"u"}]},)"
            R"({"role":"tool","content":"1"},{"role":"user","content":"s"}])");
  EXPECT_EQ(in_turns(R"([{"role":"system","content":"s"}])"),
            R"([{"role":"system","content":"s"}])");
  EXPECT_EQ(in_turns("[]"), "[]");
  // Nothing stands between calls and their results.
  const char* const between = R"([{"role":"assistant","content":"","tool_calls":[]},
      {"role":"system","content":"s"},{"role":"tool","content":"1"},{"role":"tool","content":"2"},
      {"role":"user","content":"u"}])";
  EXPECT_EQ(in_turns(between),
            R"([{"role":"assistant","content":"","tool_calls":[]},{"role":"tool","content":"1"},)"
            R"({"role":"tool","content":"2"},{"role":"user","content":"s\n\nu"}])");
  EXPECT_EQ(ChatTurns().Apply(ValueOrDie(Json::Parse(between))).as_array()[3].Dump(),
            R"({"role":"system","content":"s"})");
}

// Mistral's count turns of user and assistant, and a result is none.
TEST(ModelTextTest, UsersWhoSpeakBehindResults) {
  const std::string all = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
  EXPECT_TRUE(TurnsOf(all).takes_user_behind_result);
  const ChatTurns strict = TurnsOf(
      "{% set ns = namespace(i=0) %}{% for m in messages %}"
      "{% if m.role == 'user' or (m.role == 'assistant' and not m.tool_calls) %}"
      "{% if (m.role == 'user') != (ns.i % 2 == 0) %}{{ raise_exception('alternate') }}{% endif %}"
      "{% set ns.i = ns.i + 1 %}{% endif %}{% endfor %}" +
      all);
  EXPECT_FALSE(strict.takes_user_behind_result);
  EXPECT_EQ(ChatTurns{.takes_user_behind_result = false}
                .Apply(ValueOrDie(Json::Parse(R"([{"role":"user","content":"u"},
                    {"role":"assistant","content":"","tool_calls":[]},
                    {"role":"tool","content":"1"},{"role":"tool","content":"2"},
                    {"role":"user","content":"v"},{"role":"user","content":"w"},
                    {"role":"assistant","content":"a"},{"role":"user","content":"x"}])")))
                .Dump(),
            R"([{"role":"user","content":"u"},{"role":"assistant","content":"","tool_calls":[]},)"
            R"({"role":"tool","content":"1"},{"role":"tool","content":"2\n\nv\n\nw"},)"
            R"({"role":"assistant","content":"a"},{"role":"user","content":"x"}])");
}

// Agents begin with two turns of the user; Gemma's and Llama 2's templates want them to alternate.
TEST(ModelTextTest, NeighboursWhoAreOneAndTheSame) {
  const std::string all = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
  EXPECT_TRUE(TurnsOf(all).takes_neighbours);
  EXPECT_TRUE(TurnsOf(all).takes_system_alone);
  EXPECT_FALSE(
      TurnsOf("{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
              "{{ raise_exception('alternate') }}{% endif %}{% endfor %}" +
              all)
          .takes_neighbours);
  EXPECT_FALSE(TurnsOf("{% if messages[0].role == 'system' and messages | length > 1 %}"
                       "{{ messages[0].content }}{% endif %}"
                       "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}")
                   .takes_system_alone);

  const auto joined = [](const char* messages) {
    return ChatTurns{.takes_neighbours = false}.Apply(ValueOrDie(Json::Parse(messages))).Dump();
  };
  EXPECT_EQ(joined(R"([{"role":"user","content":"a"},{"role":"user","content":"b"},
                       {"role":"assistant","content":"c"},{"role":"assistant","content":"d"},
                       {"role":"assistant","content":"","tool_calls":[]},
                       {"role":"tool","content":"1"},{"role":"tool","content":"2"}])"),
            R"([{"role":"user","content":"a\n\nb"},{"role":"assistant","content":"c\n\nd"},)"
            R"({"role":"assistant","content":"","tool_calls":[]},)"
            R"({"role":"tool","content":"1"},{"role":"tool","content":"2"}])");
  EXPECT_EQ(joined(R"([{"role":"assistant","content":"","reasoning_content":"x"},
                       {"role":"assistant","content":"a"},
                       {"role":"assistant","content":"b","reasoning_content":"y"}])"),
            R"([{"role":"assistant","content":"a\n\nb","reasoning_content":"x\n\ny"}])");
  EXPECT_EQ(ChatTurns{.takes_system_alone = false}
                .Apply(ValueOrDie(Json::Parse(R"([{"role":"system","content":"s"}])")))
                .Dump(),
            R"([{"role":"user","content":"s"}])");
}

// Ollama's blobs have no suffix.
TEST(ModelTextTest, AGgufFileIsOneWhateverItIsCalled) {
  const ScratchFolder scratch;
  const std::string file = TinyModel::Folder("testdata/gguf/qwen2_f16.gguf");
  const std::string blob = scratch.File("sha256-0123");
  fs::copy_file(file, blob);
  EXPECT_TRUE(IsGguf(blob));
  EXPECT_EQ(ValueOrDie(LoadModelConfig(blob)).hidden_size,
            ValueOrDie(LoadModelConfig(file)).hidden_size);
  for (const auto& [name, contents] :
       {std::pair{"short", "GG"}, std::pair{"other", "other bytes"}}) {
    const std::string path = scratch.Write(name, contents);
    EXPECT_FALSE(IsGguf(path));
    const auto config = LoadModelConfig(path);
    ASSERT_FALSE(config.ok());
    EXPECT_EQ(config.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(config.error().message.find(path), std::string::npos);
  }
  EXPECT_FALSE(IsGguf(scratch.path()));
  EXPECT_FALSE(IsGguf(scratch.File("missing")));
}

}  // namespace
}  // namespace kvasir
