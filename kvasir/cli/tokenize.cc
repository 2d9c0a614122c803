// kvasir tokenize: text to token ids and back.
#include <cstdio>

#include "kvasir/cli/commands.h"
#include "kvasir/cli/input.h"
#include "kvasir/cli/model_flags.h"
#include "kvasir/cli/output.h"
#include "kvasir/formats/gguf.h"
#include "kvasir/formats/gguf_tokenizer.h"
#include "kvasir/tokenizer/token_name.h"

namespace kvasir {
namespace {

class TokenizeCommand final : public Command {
 public:
  std::string name() const override { return "tokenize"; }
  std::string help() const override { return "print the tokens of a text"; }

  void Declare(Flags& flags) override {
    flags.Add("-m,--model", &model_.model,
              "model folder, .gguf file or tokenizer.json; default: bundled model");
    flags.Add("-p,--prompt", &text_, "text");
    flags.Add("-f,--prompt-file", &file_, "file that holds the text; -: standard input");
    flags.Add("--no-special", &without_special_, "do not add BOS or EOS");
    flags.Add("--parse-special", &parses_special_, "read special tokens written in the text");
    flags.Add("--json", &is_json_, "print {tokens, pieces, text}");
  }

  Status Run() override {
    if (text_.has_value() != file_.empty()) {
      return {ErrorCode::kInvalidArgument, "give the text with -p TEXT or with -f FILE"};
    }
    KVASIR_TRY(const std::string text, text_ ? Result<std::string>(*text_) : ReadText(file_));
    KVASIR_TRY(const std::string folder, model_.Folder());
    KVASIR_TRY(const auto tokenizer, Open(folder));
    const std::vector<Token> tokens = tokenizer->Encode(
        text, {.add_special = !without_special_, .parse_special = parses_special_});
    return is_json_ ? PrintAsJson(*tokenizer, tokens) : PrintAsLines(*tokenizer, tokens);
  }

 private:
  static Result<std::unique_ptr<const Tokenizer>> Open(const std::string& model) {
    if (!IsGguf(model)) {
      if (FileExists(model)) return Tokenizer::FromFile(model);
      const auto config = ModelConfig::Load(model);  // need not be one that runs
      return Tokenizer::FromFile(model + "/tokenizer.json",
                                 config.ok() ? TokenizerOptionsFor(*config) : TokenizerOptions());
    }
    KVASIR_TRY(const GgufFile file, GgufFile::Open(model));
    const auto json = GgufTokenizerJson(file.metadata());
    if (!json.ok()) return WithContext(json.error(), model);
    auto tokenizer = Tokenizer::FromJson(*json);
    if (!tokenizer.ok()) return WithContext(tokenizer.error(), model);
    return tokenizer;
  }

  static Status PrintAsJson(const Tokenizer& tokenizer, const std::vector<Token>& tokens) {
    Json::Array ids, pieces;
    for (const Token token : tokens) {
      ids.push_back(token);
      pieces.push_back(TokenName(tokenizer, token));
    }
    return PrintJson(Json::Object{{"tokens", std::move(ids)},
                                  {"pieces", std::move(pieces)},
                                  {"text", tokenizer.Decode(tokens, {.skip_special = false})}});
  }

  static Status PrintAsLines(const Tokenizer& tokenizer, const std::vector<Token>& tokens) {
    std::string out;
    for (const Token token : tokens) {
      out += std::to_string(token) + "\t" + Json(TokenName(tokenizer, token)).Dump() + "\n";
    }
    return Print(out);
  }

  ModelFlags model_;
  std::optional<std::string> text_;
  std::string file_;
  bool without_special_ = false;
  bool parses_special_ = false;
  bool is_json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeTokenizeCommand() { return std::make_unique<TokenizeCommand>(); }

}  // namespace kvasir
