#include "kvasir/model/tensor_list.h"

#include <algorithm>
#include <set>
#include <utility>

#include "kvasir/backend/cpu_backend.h"
#include "kvasir/model/checkpoint_names.h"
#include "kvasir/model/decoder_model.h"
#include "kvasir/model/families.h"
#include "kvasir/model/mtp_head.h"
#include "kvasir/model/stored_weights.h"
#include "kvasir/tensor/coded_row.h"

namespace kvasir {
namespace {

// A matrix that is never multiplied with.
class Outline final : public WeightMatrix {
 public:
  Outline(int64_t outputs, int64_t inputs) : outputs_(outputs), inputs_(inputs) {}
  int64_t outputs() const override { return outputs_; }
  int64_t inputs() const override { return inputs_; }
  WeightFormat format() const override { return WeightFormat::kF32; }
  size_t bytes() const override { return 0; }

 private:
  const int64_t outputs_;
  const int64_t inputs_;
};

class ListingWeights final : public WeightSource {
 public:
  ListingWeights(StoredWeights& stored, ModelFamily family, float norm_offset)
      : stored_(stored), family_(family), norm_offset_(norm_offset) {}

  bool Has(const std::string& name) const override { return stored_.Has(name); }
  std::vector<int64_t> Shape(const std::string& name) const override { return stored_.Shape(name); }

  Result<std::unique_ptr<const WeightMatrix>> Matrix(const std::string& name, int64_t outputs,
                                                     int64_t inputs) override {
    KVASIR_TRY(WeightTensor rows, stored_.Tensor(name, {outputs, inputs}));
    Add(name, std::move(rows), 0);
    return std::unique_ptr<const WeightMatrix>(std::make_unique<Outline>(outputs, inputs));
  }

  Result<std::unique_ptr<const WeightMatrix>> ExactMatrix(const std::string& name, int64_t outputs,
                                                          int64_t inputs) override {
    KVASIR_TRY(WeightTensor rows, stored_.Tensor(name, {outputs, inputs}));
    Add(name, std::move(rows), 0, true);
    return std::unique_ptr<const WeightMatrix>(std::make_unique<Outline>(outputs, inputs));
  }

  // Checkpoints have either one tensor for each expert, or fused ones that are listed whole, when
  // rows of them are asked for first.
  Result<std::unique_ptr<const WeightMatrix>> Rows(const MatrixSlice& slice) override {
    if (!slice.alone.empty()) {
      KVASIR_TRY(WeightTensor rows, stored_.Slice(slice));
      Add(slice.alone, std::move(rows), 0);
    } else if (!listed_.contains(slice.name)) {
      KVASIR_TRY(WeightTensor rows, stored_.Tensor(slice.name, slice.shape));
      Add(slice.name, std::move(rows), 0);
    }
    return std::unique_ptr<const WeightMatrix>(
        std::make_unique<Outline>(slice.rows, slice.shape.back()));
  }

  // Likewise.
  Result<std::unique_ptr<const WeightMatrix>> RowsAsColumns(const MatrixSlice& slice) override {
    KVASIR_TRY_OK(Rows(slice).status());
    // One of the last: heads of a matrix are asked for one after the other.
    const std::string name = PrefixedName(slice.name);
    const auto listed =
        std::find_if(tensors_.rbegin(), tensors_.rend(),
                     [&](const ListedTensor& tensor) { return tensor.name == name; });
    if (listed != tensors_.rend()) listed->float_rows += slice.rows;
    return std::unique_ptr<const WeightMatrix>(
        std::make_unique<Outline>(slice.shape.back(), slice.rows));
  }

  // A matrix is listed whole, when some of its rows are asked for first.
  Result<std::unique_ptr<const WeightMatrix>> Gathered(const std::string& name, int64_t outputs,
                                                       int64_t inputs,
                                                       std::span<const int64_t> rows,
                                                       bool is_exact) override {
    if (!listed_.contains(name)) {
      KVASIR_TRY(WeightTensor whole, stored_.Tensor(name, {outputs, inputs}));
      Add(name, std::move(whole), 0, is_exact);
    }
    return std::unique_ptr<const WeightMatrix>(
        std::make_unique<Outline>(static_cast<int64_t>(rows.size()), inputs));
  }

  Result<std::vector<float>> Vector(const std::string& name, int64_t size, float) override {
    KVASIR_TRY(WeightTensor rows, stored_.Tensor(name, {size}));
    std::vector<float> values(static_cast<size_t>(size));
    rows.read_row(0, values.data());
    Add(name, std::move(rows), name.find("norm") != std::string::npos ? norm_offset_ : 0);
    return values;
  }

  Result<std::vector<float>> Numbers(const std::string& name,
                                     const std::vector<int64_t>& shape) override {
    KVASIR_TRY(WeightTensor rows, stored_.Tensor(name, shape));
    // Checkpoints have the one input of a convolution.
    if (name.ends_with(".conv.conv.weight") && shape.size() == 2) {
      rows.shape = {shape[0], 1, shape[1]};
    }
    Add(name, std::move(rows), 0);
    return std::vector<float>(static_cast<size_t>(RowCount(shape) * shape.back()));
  }

  std::vector<std::string> Unused() const override { return stored_.Unused(); }

  std::vector<ListedTensor> Take() { return std::move(tensors_); }

 private:
  // Once, though parts of it may be asked for more often.
  void Add(const std::string& name, WeightTensor rows, float offset, bool is_exact = false) {
    if (!listed_.insert(name).second) return;
    tensors_.push_back({.name = PrefixedName(name),
                        .rows = std::move(rows),
                        .offset = offset,
                        .is_exact = is_exact});
  }
  std::string PrefixedName(const std::string& name) const {
    const bool is_head = name.starts_with("lm_head.");
    return is_head ? name : "model." + CheckpointTensorName(family_, name);
  }

  StoredWeights& stored_;
  const ModelFamily family_;
  const float norm_offset_;
  std::vector<ListedTensor> tensors_;
  std::set<std::string> listed_;  // names as the decoder asks for them
};

Result<TensorList> ListedBy(ListingWeights& listing, const ModelConfig& config, Backend& backend) {
  const DecoderSpec spec = MakeDecoderSpec(config);
  KVASIR_TRY(const auto model, DecoderModel::Load(spec, listing, backend));
  TensorList list = {listing.Take(), UnreadTensors(spec, listing)};
  list.has_mtp_head = MtpHead::Load(config, *model, listing, backend).ok();
  return list;
}

}  // namespace

std::vector<std::string> UnreadTensors(const DecoderSpec& spec, const WeightSource& source) {
  std::vector<std::string> unread = source.Unused();
  std::erase_if(unread, [&](const std::string& name) { return IsKnownUnused(spec, name); });
  return unread;
}

std::string UnreadLine(const std::vector<std::string>& unread) {
  constexpr size_t kNamed = 5;
  std::string line = "tensors that no decoder reads:";
  for (size_t i = 0; i < std::min(unread.size(), kNamed); ++i) line += " " + unread[i];
  if (unread.size() > kNamed) line += " and " + std::to_string(unread.size() - kNamed) + " more";
  return line;
}

Result<TensorList> ListTensors(const GgufFile& file, const ModelConfig& config) {
  KVASIR_TRY(const auto backend, MakeCpuBackend({.threads = 1}));
  const auto stored = MakeGgufTensors(file, config, *backend);
  // Of the same family in a checkpoint.
  ModelConfig in_checkpoint = config;
  in_checkpoint.norms_hold_offset = false;
  ListingWeights listing(*stored, config.family, -MakeDecoderSpec(in_checkpoint).norm_offset);
  return ListedBy(listing, config, *backend);
}

Result<TensorList> ListTensors(const Checkpoint& checkpoint, const ModelConfig& config) {
  KVASIR_TRY(const auto backend, MakeCpuBackend({.threads = 1}));
  const auto stored = MakeCheckpointTensors(checkpoint, config, *backend);
  ListingWeights listing(*stored, config.family, 0);
  ModelConfig stored_config = config;
  stored_config.norms_hold_offset = HoldsNormOffset(config, checkpoint);
  return ListedBy(listing, stored_config, *backend);
}

WeightFormat FormatInMemory(const ListedTensor& tensor) {
  return tensor.is_exact ? DecodedFormat(tensor.rows) : FormatInMemory(tensor.rows);
}

uint64_t PackedBytes(const std::vector<ListedTensor>& tensors) {
  uint64_t bytes = 0;
  for (const ListedTensor& tensor : tensors) {
    const WeightTensor& rows = tensor.rows;
    if (rows.shape.size() < 2) continue;
    const WeightFormat format = FormatInMemory(tensor);
    const uint64_t float_rows = IsQuantized(format) ? static_cast<uint64_t>(tensor.float_rows) : 0;
    const uint64_t outputs = static_cast<uint64_t>(RowCount(rows.shape)) - float_rows;
    const auto inputs = static_cast<uint64_t>(rows.shape.back());
    const uint64_t group_scales = inputs / kQuantGroup * 2;
    bytes += float_rows * inputs * (DecodedFormat(rows) == WeightFormat::kF32 ? 4 : 2);
    switch (format) {
      case WeightFormat::kF32:
        bytes += outputs * inputs * 4;
        break;
      case WeightFormat::kF16:
      case WeightFormat::kBf16:
      case WeightFormat::kBf16Dot:
        bytes += outputs * inputs * 2;
        break;
      case WeightFormat::kQ8:
        bytes += outputs * (inputs + group_scales);
        break;
      case WeightFormat::kQ4:
        bytes += outputs * (inputs / 2 + group_scales);
        break;
      default:
        bytes += outputs * CodedPanelBytes(rows.shape.back(), format, rows.affine) / kPanelOutputs;
    }
  }
  return bytes;
}

}  // namespace kvasir
