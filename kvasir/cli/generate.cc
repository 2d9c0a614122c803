// kvasir generate: one prompt, one answer.
#include <cstdio>

#include "kvasir/cli/commands.h"
#include "kvasir/cli/draft_flags.h"
#include "kvasir/cli/input.h"
#include "kvasir/cli/model_flags.h"
#include "kvasir/cli/output.h"
#include "kvasir/cli/output_file.h"
#include "kvasir/engine/cached_sequence_file.h"
#include "kvasir/engine/grammar_constraint.h"

namespace kvasir {
namespace {

class GenerateCommand final : public Command {
 public:
  std::string name() const override { return "generate"; }
  std::string help() const override { return "answer one prompt, streamed to standard output"; }

  void Declare(Flags& flags) override {
    model_.Declare(flags);
    sampling_.Declare(flags);
    draft_.Declare(flags);
    flags.Add("-p,--prompt", &prompt_, "prompt text");
    flags.Add("-f,--prompt-file", &prompt_file_,
              "file that holds the prompt text; -: standard input");
    flags.Add("-n,--max-tokens", &max_tokens_, "new tokens at most");
    flags.Add("--chat", &is_chat_, "the prompt is a user's message: apply the chat template");
    flags.Add("--system", &system_, "system message; implies --chat");
    flags.Add("--grammar-file", &grammar_file_, "hold the answer to this GBNF grammar");
    flags.Add("--json-schema-file", &schema_file_, "hold the answer to this JSON schema");
    flags.Add("--stop", &stops_, "end the answer before this text; may be repeated");
    flags.Add("--ignore-eos", &ignores_eos_, "go on past end tokens");
    flags.Add("--chunk", &chunk_tokens_, "prompt tokens per forward pass; results do not change");
    flags.Add("--load-cache", &load_cache_,
              "file of --save-cache; what it holds of this prompt is not evaluated again");
    flags.Add("--save-cache", &save_cache_, "file for the cache of prompt and answer, at the end");
    flags.Add("--json", &is_json_, "print one JSON object instead of streaming");
  }

  Status Run() override {
    KVASIR_TRY(const std::string prompt, Prompt());
    KVASIR_TRY(auto grammar, ReadGrammar());
    KVASIR_TRY_OK(draft_.Prepare(model_));
    // Not after a long answer.
    if (!save_cache_.empty()) KVASIR_TRY_OK(CheckMayWriteSnapshot(save_cache_));
    KVASIR_TRY_OK(sampling_.Check());
    model_.text_need = IsChat() ? TextNeed::kChat : TextNeed::kTokenizer;
    KVASIR_TRY(const auto bundle, model_.Load());
    GenerationRequest request;
    KVASIR_TRY(request.prompt, Tokens(*bundle, prompt));
    request.max_tokens = max_tokens_;
    request.sampling = sampling_.Resolve(bundle->config().generation);
    request.stop_strings = stops_;
    request.ignore_stop_tokens = ignores_eos_;
    request.constraint = Constraint(std::move(grammar), *bundle);
    if (IsChat()) {
      request.shown_special = bundle->MarkersOf(DialectOf(bundle->chat()->source()));
    }

    InstallInterruptHandler();
    Status printed;
    GenerationCallbacks callbacks;
    callbacks.on_prefill = ShowPrefillProgress;
    callbacks.is_cancelled = [&] { return Interrupted() || !printed.ok(); };
    if (!is_json_) {
      callbacks.on_text = [&](std::string_view text) {
        if (printed.ok()) printed = PrintAnswer(text);
      };
    }
    KVASIR_TRY(CachedSequence sequence, Sequence(*bundle));
    KVASIR_TRY(const auto drafts, draft_.Load(model_, *bundle));
    Generator generator(bundle.get(), chunk_tokens_);
    generator.UseDrafter(drafts->NewDrafter(nullptr), draft_.MaxDrafts());
    KVASIR_TRY(const GenerationResult result, generator.Generate(request, sequence, callbacks));
    KVASIR_TRY_OK(printed);
    if (is_json_) {
      KVASIR_TRY_OK(PrintJson(ToJson(result)));
    } else {
      KVASIR_TRY_OK(Print("\n"));
      std::fprintf(stderr, "%s\n", StatsLine(result.stats).c_str());
    }
    if (!save_cache_.empty()) {
      KVASIR_TRY_OK(SaveCachedSequence(sequence, *bundle, save_cache_));
    }
    if (result.finish == FinishReason::kCancelled) return {ErrorCode::kCancelled, "interrupted"};
    return {};
  }

 private:
  Result<std::string> Prompt() const {
    if (prompt_.has_value() != prompt_file_.empty()) {
      return {ErrorCode::kInvalidArgument, "give the prompt with either -p TEXT or -f FILE"};
    }
    KVASIR_TRY_OK(CheckRange("--max-tokens", max_tokens_, 0, kNoMost));
    KVASIR_TRY_OK(CheckRange("--chunk", chunk_tokens_, 1, kNoMost));
    if (prompt_file_ == "-" && (grammar_file_ == "-" || schema_file_ == "-")) {
      return {ErrorCode::kInvalidArgument, "standard input is read once: give one '-'"};
    }
    return prompt_file_.empty() ? Result<std::string>(*prompt_) : ReadText(prompt_file_);
  }

  std::string SystemText() const { return system_.value_or(""); }
  bool IsChat() const { return is_chat_ || !SystemText().empty(); }

  // Null where none was asked for.
  Result<std::shared_ptr<const Grammar>> ReadGrammar() const {
    if (grammar_file_.empty() && schema_file_.empty()) return std::shared_ptr<const Grammar>();
    if (!grammar_file_.empty() && !schema_file_.empty()) {
      return {ErrorCode::kInvalidArgument, "give --grammar-file or --json-schema-file, not both"};
    }
    if (schema_file_.empty()) {
      KVASIR_TRY(const std::string text, ReadText(grammar_file_, kMostTextBytes));
      auto grammar = Grammar::FromGbnf(text);
      if (!grammar.ok()) return WithContext(grammar.error(), grammar_file_);
      return grammar;
    }
    KVASIR_TRY(const std::string text, ReadText(schema_file_, kMostTextBytes));
    const auto schema = Json::Parse(text);
    if (!schema.ok()) return WithContext(schema.error(), schema_file_);
    auto grammar = Grammar::FromJsonSchema(*schema);
    if (!grammar.ok()) return WithContext(grammar.error(), schema_file_);
    return grammar;
  }

  static std::shared_ptr<const TokenConstraintSource> Constraint(
      std::shared_ptr<const Grammar> grammar, const ModelBundle& bundle) {
    if (grammar == nullptr) return nullptr;
    auto vocabulary = std::make_shared<const GrammarVocabulary>(
        GrammarVocabulary::FromTokenizer(*bundle.tokenizer(), bundle.stop_tokens()));
    return std::make_shared<GrammarConstraintSource>(std::move(grammar), std::move(vocabulary));
  }

  Result<CachedSequence> Sequence(ModelBundle& bundle) const {
    if (load_cache_.empty()) return bundle.NewSequence();
    KVASIR_TRY(LoadedCachedSequence loaded, LoadCachedSequence(bundle, load_cache_));
    return std::move(loaded.sequence);
  }

  Result<std::vector<Token>> Tokens(const ModelBundle& bundle, const std::string& prompt) const {
    if (!IsChat()) {
      // What the user types is text; "<eos>" in it is not an end token.
      return bundle.tokenizer()->Encode(prompt, {.add_special = true, .parse_special = false});
    }
    Json messages = Json::Array();
    const auto add = [&](const char* role, const std::string& content) {
      messages.Append(Json::Object{{"role", role}, {"content", content}});
    };
    if (!SystemText().empty()) add("system", SystemText());
    add("user", prompt);
    return bundle.ChatTokens(messages);
  }

  static Json ToJson(const GenerationResult& result) {
    Json json;
    json.Set("text", result.text);
    Json::Array tokens(result.tokens.begin(), result.tokens.end());
    json.Set("tokens", std::move(tokens));
    json.Set("finish_reason", FinishReasonName(result.finish));
    json.Set("stats", StatsJson(result.stats));
    return json;
  }

  ModelFlags model_;
  SamplingFlags sampling_;
  DraftFlags draft_;
  std::optional<std::string> prompt_;
  std::string prompt_file_;
  std::optional<std::string> system_;
  std::string grammar_file_;
  std::string schema_file_;
  std::string load_cache_;
  std::string save_cache_;
  std::vector<std::string> stops_;
  int64_t max_tokens_ = 256;
  int64_t chunk_tokens_ = 512;
  bool is_chat_ = false;
  bool ignores_eos_ = false;
  bool is_json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeGenerateCommand() { return std::make_unique<GenerateCommand>(); }

}  // namespace kvasir
