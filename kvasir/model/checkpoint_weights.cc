// Weights of a safetensors checkpoint: dense ones, and modules of quantized ones.
// Deliberately knows no quantization: formats/quantized_modules.h reads them.
#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "kvasir/formats/quantized_modules.h"
#include "kvasir/model/checkpoint_names.h"
#include "kvasir/model/stored_weights.h"

namespace kvasir {
namespace {

// Wrappers of multimodal models nest the text decoder; tried in this order.
constexpr std::string_view kPrefixes[] = {"model.", "model.language_model.",
                                          "language_model.model.", ""};
constexpr std::string_view kEmbedding = "embed_tokens.weight";
constexpr std::string_view kEmbeddingModule = "embed_tokens.";
constexpr std::string_view kHeadModule = "lm_head.";
constexpr std::string_view kHead = "lm_head.weight";
constexpr std::string_view kWeight = ".weight";

class CheckpointWeights final : public StoredWeights {
 public:
  CheckpointWeights(const Checkpoint& checkpoint, const ModelConfig& config, Backend& backend,
                    const StoredWeightsOptions& options)
      : StoredWeights(backend, options),
        checkpoint_(checkpoint),
        modules_(checkpoint, config.quantization),
        family_(config.family) {
    for (std::string_view prefix : kPrefixes) {
      if (Exists(std::string(prefix) + std::string(kEmbedding))) {
        prefix_ = prefix;
        break;
      }
    }
    AddOtherNames(config);
  }

  bool Has(const std::string& name) const override { return Exists(FullName(name)); }

  std::vector<int64_t> Shape(const std::string& name) const override {
    const TensorView* const view = checkpoint_.Find(FullName(name));
    return view == nullptr ? std::vector<int64_t>() : view->shape;
  }

  Result<std::vector<int64_t>> Integers(const std::string& name, int64_t size) override {
    const std::string where = Where(name);
    const TensorView* const view = checkpoint_.Find(FullName(name));
    if (view == nullptr) return {ErrorCode::kNotFound, where + " is missing"};
    if (view->shape != std::vector<int64_t>{size} ||
        (view->dtype != DType::kI64 && view->dtype != DType::kI32)) {
      return {ErrorCode::kCorrupt,
              where + " must be " + std::to_string(size) + " whole numbers of 4 or 8 bytes"};
    }
    used_.insert(FullName(name));
    std::vector<int64_t> values(static_cast<size_t>(size));
    for (size_t i = 0; i < values.size(); ++i) {
      int32_t narrow = 0;
      if (view->dtype == DType::kI64) {
        std::memcpy(&values[i], view->data + i * sizeof(int64_t), sizeof(int64_t));
      } else {
        std::memcpy(&narrow, view->data + i * sizeof(narrow), sizeof(narrow));
        values[i] = narrow;
      }
    }
    return values;
  }

  std::vector<std::string> Unused() const override {
    std::vector<std::string> unused;
    for (const std::string& name : checkpoint_.names()) {
      if (!used_.contains(name) && !IsCopyOfEmbedding(name)) unused.push_back(name);
    }
    std::sort(unused.begin(), unused.end());
    return unused;
  }

 protected:
  Result<WeightTensor> Take(const std::string& name, const std::vector<int64_t>& shape) override {
    const std::string full_name = FullName(name);
    const std::string module = shape.size() < 2 ? "" : QuantizedModule(full_name);
    if (!module.empty()) return TakeQuantized(module, shape);
    KVASIR_TRY(const TensorView tensor, checkpoint_.Get(full_name, shape));
    used_.insert(full_name);
    WeightTensor weights = DenseWeights(tensor);
    weights.is_mapped = true;
    return weights;
  }

  std::string Where(const std::string& name) const override {
    return checkpoint_.path() + ": tensor '" + FullName(name) + "'";
  }

 private:
  // Without the last part, which of a quantized module's tensors is one of several.
  static std::string ModuleOf(const std::string& name) { return name.substr(0, name.rfind('.')); }

  void AddOtherNames(const ModelConfig& config) {
    for (const std::string& name : checkpoint_.names()) {
      if (!name.starts_with(prefix_)) continue;
      const std::string stored = name.substr(prefix_.size());
      std::string decoder = DecoderTensorName(config.family, stored);
      if (config.draft_layers > 0) decoder = DraftTensorName(config.num_hidden_layers, decoder);
      if (decoder != stored) other_names_.emplace(ModuleOf(decoder), ModuleOf(stored));
    }
  }

  std::string StoredName(const std::string& name) const {
    const std::string module = ModuleOf(name);
    const auto other = other_names_.find(module);
    if (other != other_names_.end()) return other->second + name.substr(module.size());
    // What the decoder calls so is another tensor there.
    return family_ == ModelFamily::kGlm4 ? CheckpointTensorName(family_, name) : name;
  }

  // As a tensor, or as the matrix that a module's tensors make.
  bool Exists(const std::string& full_name) const {
    return checkpoint_.Find(full_name) != nullptr || !QuantizedModule(full_name).empty();
  }

  // Whose matrix the tensor would be, if that is quantized; else nothing.
  std::string QuantizedModule(const std::string& full_name) const {
    if (!full_name.ends_with(kWeight)) return {};
    std::string module = full_name.substr(0, full_name.size() - kWeight.size());
    return modules_.Has(module) ? module : std::string();
  }

  Result<WeightTensor> TakeQuantized(const std::string& module, const std::vector<int64_t>& shape) {
    // A stack of experts is asked for once for each of them, and reading it looks at all its
    // scales.
    const auto known = stacks_.find(module);
    if (known != stacks_.end() && known->second.shape == shape) return known->second;
    KVASIR_TRY(WeightTensor read, modules_.Read(module));
    if (RowCount(read.shape) != RowCount(shape) || read.shape.back() != shape.back()) {
      return {ErrorCode::kCorrupt, checkpoint_.path() + ": module '" + module + "' is a matrix " +
                                       ShapeString(read.shape) + ", the model needs " +
                                       ShapeString(shape)};
    }
    read.shape = shape;
    for (const std::string& part : modules_.PartsOf(module)) used_.insert(part);
    if (shape.size() > 2) stacks_[module] = read;
    return read;
  }

  // Whether the tensor is a head's (or of its quantized parts one) that repeats the embedding's, as
  // some files of tied models have. Looks at a sample: others differ everywhere.
  bool IsCopyOfEmbedding(const std::string& name) const {
    const size_t at = name.rfind(kHeadModule);
    if (at == std::string::npos) return false;
    const TensorView* const head = checkpoint_.Find(name);
    const TensorView* const embedding = checkpoint_.Find(prefix_ + std::string(kEmbeddingModule) +
                                                         name.substr(at + kHeadModule.size()));
    if (embedding == nullptr || head->dtype != embedding->dtype ||
        head->shape != embedding->shape) {
      return false;
    }
    constexpr size_t kPieces = 64;
    constexpr size_t kPieceBytes = 4096;
    const size_t bytes = static_cast<size_t>(head->elements()) * DTypeBytes(head->dtype);
    const size_t step = std::max(bytes / kPieces, kPieceBytes);
    for (size_t begin = 0; begin < bytes; begin += step) {
      const size_t piece = std::min(kPieceBytes, bytes - begin);
      if (std::memcmp(head->data + begin, embedding->data + begin, piece) != 0) return false;
    }
    return true;
  }

  // The head lies outside the decoder's prefix: "lm_head.weight", "language_model.lm_head.weight";
  // so does what an assistant, or a layer that drafts, has beside the decoder.
  std::string FullName(const std::string& name) const {
    const std::string nested = "language_model." + name;
    if (name == kHead) return Exists(nested) ? nested : name;
    const std::string inside = prefix_ + StoredName(name);
    if (Exists(inside)) return inside;
    if (Exists(name)) return name;
    return Exists(nested) ? nested : inside;
  }

  const Checkpoint& checkpoint_;
  const QuantizedModules modules_;
  const ModelFamily family_;
  std::string prefix_ = "model.";
  // Of modules that the checkpoint calls otherwise, by what the decoder calls them.
  std::unordered_map<std::string, std::string> other_names_;
  std::unordered_set<std::string> used_;
  std::unordered_map<std::string, WeightTensor> stacks_;
};

}  // namespace

std::unique_ptr<WeightSource> MakeCheckpointWeights(const Checkpoint& checkpoint,
                                                    const ModelConfig& config, Backend& backend,
                                                    const StoredWeightsOptions& options) {
  return std::make_unique<CheckpointWeights>(checkpoint, config, backend, options);
}

std::unique_ptr<StoredWeights> MakeCheckpointTensors(const Checkpoint& checkpoint,
                                                     const ModelConfig& config, Backend& backend) {
  return std::make_unique<CheckpointWeights>(checkpoint, config, backend, StoredWeightsOptions{});
}

}  // namespace kvasir
