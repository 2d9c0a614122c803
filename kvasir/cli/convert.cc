// kvasir convert: a model folder or GGUF file becomes a model folder or GGUF file of another type.
// Deliberately never writes over anything: what it makes appears when it is complete.
#include "kvasir/cli/commands.h"
#include "kvasir/cli/output.h"
#include "kvasir/convert/conversion_notes.h"
#include "kvasir/convert/convert_model.h"
#include "kvasir/convert/folder_builder.h"
#include "kvasir/convert/write_gguf.h"

namespace kvasir {
namespace {

class ConvertCommand final : public Command {
 public:
  std::string name() const override { return "convert"; }
  std::string help() const override { return "write a model as another type of weights"; }

  void Declare(Flags& flags) override {
    flags.AddRequired("-m,--model", &model_, "model folder or .gguf file");
    flags.AddRequired("-o,--out", &out_, "folder to create, or .gguf file");
    flags.Add(
        "--type", &type_,
        "weights: stored, f32, f16, bf16, int4, int8, mxfp4, nvfp4, mxfp8, int2, int3, int5, int6; "
        "of .gguf files stored, f32, f16, bf16, q8_0, q4_0");
    flags.Add("--group-size", &group_size_,
              "inputs that share a scale: 32, 64, 128; 0: the type's");
    flags.Add("-t,--threads", &threads_, "threads; 0: one per physical core");
    flags.Add("--json", &is_json_, "print a summary as JSON");
  }

  Status Run() override {
    KVASIR_TRY_OK(CheckRange("--threads", threads_, 0, kMostThreads));
    KVASIR_TRY_OK(CheckRange("--group-size", group_size_, 0, 128));
    if (IsGgufPath(out_) && group_size_ != 0) {
      return {ErrorCode::kInvalidArgument,
              "--group-size is for folders; groups of GGUF files have 32 inputs"};
    }
    KVASIR_TRY(const ModelSource source, ModelSource::Open(model_));
    // Another engine may know what is unknown here; what is incomplete is nobody's model.
    const Status runs = CheckRuns(source);
    if (!runs.ok() && runs.error().code != ErrorCode::kUnsupported) return runs.error();
    const bool to_gguf = IsGgufPath(out_);
    if (!runs.ok() && to_gguf) {
      return {runs.error().code,
              runs.error().message + ": it has no place in a GGUF file; a folder may be converted"};
    }
    if (!runs.ok()) {
      LogToStderr(LogLevel::kWarning,
                  runs.error().message + "; converted without knowing what its tensors mean");
    }
    for (const std::string& note :
         ConversionNotes(source, {.is_gguf = to_gguf, .is_stored = type_ == "stored"})) {
      LogToStderr(LogLevel::kWarning, note);
    }
    uint64_t written = 0;
    const auto progress = [&](uint64_t done, uint64_t total) {
      written = done;
      ShowWriteProgress("model", done, total);
    };
    if (to_gguf) {
      KVASIR_TRY_OK(WriteGguf(source, out_, {type_, static_cast<int>(threads_), progress}));
    } else {
      WriteOptions options;
      KVASIR_TRY(options.plan, PlanFor(source, type_, static_cast<int>(group_size_)));
      options.threads = static_cast<int>(threads_);
      options.progress = progress;
      KVASIR_TRY(FolderBuilder builder, FolderBuilder::Create(out_));
      KVASIR_TRY_OK(builder.CheckIsOutside(source.path()));
      KVASIR_TRY_OK(builder.Finish(WriteModelFolder(source, builder.partial(), options)));
    }
    if (!is_json_) {
      return Print(out_ + ": " + std::to_string(source.tensors().size()) + " tensors, " +
                   FormatBytes(written) + "\n");
    }
    return PrintJson(Json::Object{{"out", out_},
                                  {"type", type_},
                                  {"tensors", static_cast<uint64_t>(source.tensors().size())},
                                  {"bytes", written}});
  }

 private:
  std::string model_;
  std::string out_;
  std::string type_ = "stored";
  int64_t group_size_ = 0;
  int64_t threads_ = 0;
  bool is_json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeConvertCommand() { return std::make_unique<ConvertCommand>(); }

}  // namespace kvasir
