// kvasir demo: what a newcomer sees first. A short conversation with the bundled model in which
// the second question finds the first one's rows in the cache, and a report.
#include <cstdio>

#include "kvasir/cli/commands.h"
#include "kvasir/cli/model_flags.h"
#include "kvasir/cli/output.h"

namespace kvasir {
namespace {

// Look-ups in the context, in words the bundled model knows: what it was trained to do, and what a
// cache is for.
constexpr const char* kQuestions[] = {
    "Lucia whispered: \"We need three plates.\" Freya answered: \"I lost my silver letter.\" The "
    "pass "
    "key is 48213. Remember it. What is the pass key?",
    "What did Freya say?",
};

class DemoCommand final : public Command {
 public:
  std::string name() const override { return "demo"; }
  std::string help() const override {
    return "a short conversation with the bundled model and a report of what the cache did";
  }

  void Declare(Flags& flags) override {
    model_.Declare(flags);
    flags.Add("--json", &is_json_, "print one JSON object per turn instead of streaming");
  }

  Status Run() override {
    model_.text_need = TextNeed::kChat;
    KVASIR_TRY(const auto bundle, model_.Load());
    KVASIR_TRY(CachedSequence sequence, bundle->NewSequence());
    Generator generator(bundle.get());
    Json messages = Json::Array();
    int64_t cached = 0;
    int64_t prompt = 0;
    for (const char* question : kQuestions) {
      messages.Append(Json::Object{{"role", "user"}, {"content", question}});
      GenerationRequest request;
      KVASIR_TRY(request.prompt, bundle->ChatTokens(messages));
      request.max_tokens = 64;
      if (!is_json_) KVASIR_TRY_OK(Print("\n> " + std::string(question) + "\n"));
      Status printed;
      GenerationCallbacks callbacks;
      callbacks.is_cancelled = [&] { return !printed.ok(); };
      if (!is_json_) {
        callbacks.on_text = [&](std::string_view text) {
          if (printed.ok()) printed = PrintAnswer(text);
        };
      }
      KVASIR_TRY(const GenerationResult result, generator.Generate(request, sequence, callbacks));
      KVASIR_TRY_OK(printed);
      KVASIR_TRY_OK(Report(result));
      messages.Append(Json::Object{{"role", "assistant"}, {"content", result.text}});
      cached += result.stats.cached_tokens;
      prompt += result.stats.prompt_tokens;
    }
    const KvPoolStats pool = bundle->pool().Stats();
    std::fprintf(stderr,
                 "\ncache: %lld of %lld prompt tokens were not evaluated again | %s in use, %s "
                 "copied\n",
                 static_cast<long long>(cached), static_cast<long long>(prompt),
                 FormatBytes(pool.used_bytes).c_str(),
                 FormatBytes(static_cast<size_t>(pool.copied_bytes)).c_str());
    return {};
  }

 private:
  Status Report(const GenerationResult& result) const {
    if (!is_json_) {
      KVASIR_TRY_OK(Print("\n"));
      std::fprintf(stderr, "  [%s]\n", StatsLine(result.stats).c_str());
      return {};
    }
    Json json;
    json.Set("text", result.text);
    json.Set("stats", StatsJson(result.stats));
    return PrintJson(json);
  }

  ModelFlags model_;
  bool is_json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeDemoCommand() { return std::make_unique<DemoCommand>(); }

}  // namespace kvasir
