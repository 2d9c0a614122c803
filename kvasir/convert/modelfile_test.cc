#include "kvasir/convert/modelfile.h"

#include <gtest/gtest.h>

namespace kvasir {
namespace {

TEST(Modelfile, ReadsEveryCommand) {
  const auto file = Modelfile::Parse(
      "# a comment\r\n"
      "from ./old\n"
      "FROM ./model dir\n"
      "\n"
      "Draft \"small one\"\n"
      "PARAMETER temperature 0.5\n"
      "  PARAMETER stop \"<end> \"\n"
      "SYSTEM \"\"\"You are\nbrief.\"\"\"\n"
      "TEMPLATE {{ messages }}\n");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->from, "./model dir");
  EXPECT_EQ(file->draft, "small one");
  EXPECT_EQ(file->system, "You are\nbrief.");
  EXPECT_EQ(file->chat_template, "{{ messages }}");
  const std::vector<Modelfile::Parameter> parameters = {{"temperature", "0.5", 6},
                                                        {"stop", "<end> ", 7}};
  EXPECT_EQ(file->parameters, parameters);
}

TEST(Modelfile, AByteOrderMarkIsSkipped) {
  const auto file = Modelfile::Parse(
      "\xEF\xBB\xBF"
      "FROM x\r\n");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->from, "x");
}

struct Bad {
  const char* text;
  const char* message;
};

TEST(Modelfile, LinesMayEndAsOnWindows) {
  const auto file = Modelfile::Parse("FROM a\r\nSYSTEM \"\"\"one\r\ntwo\r\n\"\"\"\r\n");
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->from, "a");
  EXPECT_EQ(file->system, "one\ntwo\n");
}

TEST(Modelfile, ErrorsNameTheLine) {
  for (const Bad& bad : {
           Bad{"", "no FROM"},
           Bad{"# FROM x", "no FROM"},
           Bad{"FROM", "line 1: FROM needs a value"},
           Bad{"FROM x\nPARAMETER top_k", "line 2: PARAMETER needs a name and a value"},
           Bad{"FROM x\nSYSTEM \"open", "line 2: a quote is not closed"},
           Bad{"FROM x\nTEMPLATE \"\"", "line 2: TEMPLATE is empty; leave the line out"},
           Bad{"FROM x\nSYSTEM \"\"\"open\n\n", "line 2: \"\"\" is not closed"},
           Bad{"FROM x\nSYSTEM \"\"\"a\nb\"\"\" c", "line 3: something follows"},
           Bad{"FROM x\nADAPTER y", "line 2: ADAPTER has no meaning here"},
           Bad{"FROM x\nSYSTEM caf\xE9", "line 2: is no UTF-8"},
           Bad{"FROM x\nSYSTEM \"\"\"a\n\xFF\n\"\"\"\nDRAFT y", "line 4: is no UTF-8"},
           Bad{"FORM x", "line 1: 'FORM' is no command"},
       }) {
    const auto file = Modelfile::Parse(bad.text);
    ASSERT_FALSE(file.ok()) << bad.text;
    EXPECT_NE(file.error().message.find(bad.message), std::string::npos) << file.error().message;
  }
}

}  // namespace
}  // namespace kvasir
