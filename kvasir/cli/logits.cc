// kvasir logits: token ids in, logits of every position out. Needs no tokenizer.
#include <cstdio>
#include <sstream>

#include "kvasir/cli/commands.h"
#include "kvasir/cli/model_flags.h"
#include "kvasir/cli/output.h"
#include "kvasir/cli/output_file.h"
#include "kvasir/formats/npy.h"

namespace kvasir {
namespace {

class LogitsCommand final : public Command {
 public:
  std::string name() const override { return "logits"; }
  std::string help() const override {
    return "write the logits of every position as float32 [tokens, vocabulary] .npy";
  }

  void Declare(Flags& flags) override {
    model_.Declare(flags,
                   "f32");  // logits are for comparing: the cache adds no rounding of its own
    flags.AddRequired("--tokens", &tokens_, "token ids, e.g. \"1 2 3\" or \"1,2,3\"");
    flags.AddRequired("-o,--out", &out_, "file to write");
    flags.Add("--chunk", &chunk_tokens_, "tokens per forward pass; results do not change");
    flags.Add("--json", &is_json_, "print a summary as JSON");
  }

  Status Run() override {
    KVASIR_TRY(const std::vector<Token> tokens, ParseTokens());
    KVASIR_TRY_OK(CheckRange("--chunk", chunk_tokens_, 1, kNoMost));
    KVASIR_TRY_OK(CheckMayWrite(out_, kNpyMagic, ".npy file"));
    KVASIR_TRY(const auto bundle, model_.Load());
    KVASIR_TRY(KvSequence sequence, KvSequence::Create(&bundle->pool(), bundle->cache_spec()));
    KVASIR_TRY(NpyWriter writer, NpyWriter::Create(out_, bundle->model().vocab_size()));
    Workspace workspace;
    for (size_t begin = 0; begin < tokens.size();) {
      const auto limit = static_cast<size_t>(std::min(chunk_tokens_, sequence.RunLimit()));
      const auto part = std::span(tokens).subspan(begin, std::min(limit, tokens.size() - begin));
      begin += part.size();
      const SequenceRun run = {&sequence, part, static_cast<int64_t>(part.size())};
      KVASIR_TRY(const ConstFloatRows logits,
                 bundle->model().Forward(std::span(&run, 1), workspace));
      for (int64_t row = 0; row < logits.rows; ++row) {
        KVASIR_TRY_OK(writer.AppendRow({logits.row(row), static_cast<size_t>(logits.cols)}));
      }
    }
    KVASIR_TRY_OK(writer.Finish());
    if (!is_json_) return {};
    return PrintJson(Json::Object{{"file", out_},
                                  {"rows", static_cast<int64_t>(tokens.size())},
                                  {"cols", bundle->model().vocab_size()},
                                  {"kv_bytes", static_cast<uint64_t>(sequence.nbytes())}});
  }

 private:
  Result<std::vector<Token>> ParseTokens() const {
    std::string text = tokens_;
    for (char& c : text) {
      if (c == ',' || c == '[' || c == ']') c = ' ';
    }
    std::vector<Token> tokens;
    std::istringstream stream(text);
    std::string word;
    while (stream >> word) {
      char* end = nullptr;
      const long long value = std::strtoll(word.c_str(), &end, 10);
      if (*end != '\0' || value < 0 || value > INT32_MAX) {
        return {ErrorCode::kInvalidArgument, "--tokens: '" + word + "' is no token id"};
      }
      tokens.push_back(static_cast<Token>(value));
    }
    if (tokens.empty()) return {ErrorCode::kInvalidArgument, "--tokens names no token"};
    return tokens;
  }

  ModelFlags model_;
  std::string tokens_;
  std::string out_;
  int64_t chunk_tokens_ = 128;  // a row of logits is large: 0.6 MB at a vocabulary of 152k
  bool is_json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeLogitsCommand() { return std::make_unique<LogitsCommand>(); }

}  // namespace kvasir
