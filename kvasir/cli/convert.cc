// kvasir convert: a model folder or GGUF file becomes a model folder, dense or quantized.
// Deliberately never writes over anything: the folder appears when it is complete.
#include "kvasir/cli/commands.h"
#include "kvasir/cli/output.h"
#include "kvasir/convert/convert_model.h"

namespace kvasir {
namespace {

class ConvertCommand final : public Command {
 public:
  std::string name() const override { return "convert"; }
  std::string help() const override { return "write a model as another type of weights"; }

  void Declare(Flags& flags) override {
    flags.AddRequired("-m,--model", &model_, "model folder or .gguf file");
    flags.AddRequired("-o,--out", &out_, "folder to create");
    flags.Add("--type", &type_,
              "weights: stored, f32, f16, bf16, int4, int8, mxfp4, mxfp8, int2, int3, int5, int6");
    flags.Add("--group-size", &group_size_,
              "inputs that share a scale: 32, 64, 128; 0: the type's");
    flags.Add("-t,--threads", &threads_, "threads; 0: one per core");
    flags.Add("--json", &is_json_, "print a summary as JSON");
  }

  Status Run() override {
    if (threads_ < 0 || threads_ > 1024 || group_size_ < 0 || group_size_ > 128) {
      return {ErrorCode::kInvalidArgument,
              "--threads must be 0 to 1024 and --group-size 0, 32, 64 or 128"};
    }
    KVASIR_TRY(const ModelSource source, ModelSource::Open(model_));
    uint64_t written = 0;
    WriteOptions options;
    KVASIR_TRY(options.plan, PlanFor(source, type_, static_cast<int>(group_size_)));
    options.threads = static_cast<int>(threads_);
    options.progress = [&](uint64_t done, uint64_t total) {
      written = done;
      ShowWriteProgress("model", done, total);
    };
    KVASIR_TRY(FolderBuilder builder, FolderBuilder::Create(out_));
    KVASIR_TRY_OK(WriteModelFolder(source, builder.partial(), options));
    KVASIR_TRY_OK(builder.Commit());
    if (!is_json_) {
      return Print(out_ + ": " + std::to_string(source.tensors().size()) + " tensors, " +
                   FormatBytes(written) + "\n");
    }
    return PrintJson(Json::Object{{"folder", out_},
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
