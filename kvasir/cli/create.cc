// kvasir create: packages a model, its draft and how they want to be used into one folder.
// Deliberately only flags and a Modelfile: kvasir/convert does the work.
#include <filesystem>

#include "kvasir/base/file.h"
#include "kvasir/cli/commands.h"
#include "kvasir/cli/output.h"
#include "kvasir/convert/package.h"

namespace kvasir {
namespace {

class CreateCommand final : public Command {
 public:
  std::string name() const override { return "create"; }
  std::string help() const override {
    return "package a model, a draft and their settings into one folder";
  }

  void Declare(Flags& flags) override {
    flags.AddRequired("-o,--out", &options_.output, "folder to create");
    flags.Add("-f,--file", &file_, "Modelfile with FROM, DRAFT, PARAMETER, TEMPLATE, SYSTEM lines");
    flags.Add("-m,--from", &from_, "the model: a folder or .gguf file; instead of FROM");
    flags.Add("--draft", &draft_, "a smaller model that drafts for it; instead of DRAFT");
    flags.Add(
        "--quantize", &options_.quantize,
        "weights of the model: int4, int8, mxfp4, nvfp4, mxfp8, bf16, f16, ...; else as they are");
    flags.Add("--quantize-draft", &options_.quantize_draft, "the same for the draft");
    flags.Add("-t,--threads", &threads_, "threads; 0: one per physical core");
  }

  Status Run() override {
    KVASIR_TRY_OK(CheckRange("--threads", threads_, 0, kMostThreads));
    options_.threads = static_cast<int>(threads_);
    KVASIR_TRY_OK(ReadModelfile());
    options_.progress = ShowWriteProgress;
    options_.log = LogToStderr;
    KVASIR_TRY_OK(CreatePackage(options_));
    return Print(options_.output + " is ready: kvasir chat -m " + options_.output + "\n");
  }

 private:
  Status ReadModelfile() {
    if (file_.empty() == from_.empty()) {
      return {ErrorCode::kInvalidArgument, "give either --from MODEL or -f MODELFILE"};
    }
    if (file_.empty()) {
      options_.file.from = from_;
      options_.file.draft = draft_;
      return {};
    }
    if (!draft_.empty()) {
      return {ErrorCode::kInvalidArgument, "with -f the draft is a DRAFT line, not --draft"};
    }
    KVASIR_TRY(const std::string text, ReadFile(file_));
    auto parsed = Modelfile::Parse(text);
    if (!parsed.ok()) return WithContext(parsed.error(), file_);
    options_.file = *std::move(parsed);
    options_.base = std::filesystem::path(file_).parent_path().string();
    return {};
  }

  PackageOptions options_;
  std::string file_;
  std::string from_;
  std::string draft_;
  int64_t threads_ = 0;
};

}  // namespace

std::unique_ptr<Command> MakeCreateCommand() { return std::make_unique<CreateCommand>(); }

}  // namespace kvasir
