#include "kvasir/model/weight_source.h"

#include <algorithm>
#include <cmath>

namespace kvasir {
namespace {

// Wrappers of multimodal models nest the text decoder; tried in this order.
constexpr std::string_view kPrefixes[] = {"model.", "model.language_model.",
                                          "language_model.model.", ""};
constexpr std::string_view kEmbedding = "embed_tokens.weight";
constexpr std::string_view kHead = "lm_head.weight";

class CheckpointWeights final : public WeightSource {
 public:
  CheckpointWeights(const Checkpoint& checkpoint, Backend& backend,
                    std::optional<WeightFormat> format)
      : checkpoint_(checkpoint), backend_(backend), format_(format) {
    for (std::string_view prefix : kPrefixes) {
      if (checkpoint.Find(std::string(prefix) + std::string(kEmbedding)) != nullptr) {
        prefix_ = prefix;
        break;
      }
    }
  }

  bool Has(const std::string& name) const override {
    return checkpoint_.Find(FullName(name)) != nullptr;
  }

  Result<std::unique_ptr<const WeightMatrix>> Matrix(const std::string& name, int64_t outputs,
                                                     int64_t inputs) override {
    KVASIR_TRY(const TensorView tensor, Take(name, {outputs, inputs}));
    WeightFormat format = format_.value_or(FormatOf(tensor.dtype));
    if (IsQuantized(format) && inputs % kQuantGroup != 0) format = FormatOf(tensor.dtype);
    auto packed = backend_.Pack(tensor, format);
    if (!packed.ok()) {
      return WithContext(packed.error(), checkpoint_.path() + ": tensor '" + FullName(name) + "'");
    }
    return packed;
  }

  Result<std::vector<float>> Vector(const std::string& name, int64_t size, float offset) override {
    KVASIR_TRY(const TensorView tensor, Take(name, {size}));
    std::vector<float> values(static_cast<size_t>(size));
    ReadFloats(tensor, 0, size, values.data());
    for (float& value : values) value += offset;
    return values;
  }

  std::vector<std::string> Unused() const override {
    std::vector<std::string> unused;
    for (const std::string& name : checkpoint_.names()) {
      if (used_.find(name) == used_.end()) unused.push_back(name);
    }
    std::sort(unused.begin(), unused.end());
    return unused;
  }

 private:
  static WeightFormat FormatOf(DType dtype) {
    return dtype == DType::kF32   ? WeightFormat::kF32
           : dtype == DType::kF16 ? WeightFormat::kF16
                                  : WeightFormat::kBf16;
  }

  // The head lies outside the decoder's prefix: "lm_head.weight", "language_model.lm_head.weight".
  std::string FullName(const std::string& name) const {
    if (name != kHead) return prefix_ + name;
    const std::string nested = "language_model." + name;
    return checkpoint_.Find(nested) != nullptr ? nested : name;
  }

  Result<TensorView> Take(const std::string& name, const std::vector<int64_t>& shape) {
    const std::string full_name = FullName(name);
    KVASIR_TRY(const TensorView tensor, checkpoint_.Get(full_name, shape));
    if (!IsFloatType(tensor.dtype)) {
      return {ErrorCode::kUnsupported, "tensor '" + full_name + "' has type " +
                                           std::string(DTypeName(tensor.dtype)) +
                                           "; f32, f16 and bf16 weights can be loaded"};
    }
    used_.insert(full_name);
    return tensor;
  }

  const Checkpoint& checkpoint_;
  Backend& backend_;
  const std::optional<WeightFormat> format_;
  std::string prefix_ = "model.";
  std::unordered_set<std::string> used_;
};

class RandomWeights final : public WeightSource {
 public:
  RandomWeights(Backend& backend, WeightFormat format) : backend_(backend), format_(format) {}

  bool Has(const std::string&) const override { return true; }

  Result<std::unique_ptr<const WeightMatrix>> Matrix(const std::string& name, int64_t outputs,
                                                     int64_t inputs) override {
    // FNV-1a: any hash that is the same everywhere will do.
    uint64_t seed = 0xCBF29CE484222325ull;
    for (const char c : name) seed = (seed ^ static_cast<uint8_t>(c)) * 0x100000001B3ull;
    const bool fits = !IsQuantized(format_) || inputs % kQuantGroup == 0;
    // sqrt(3): a uniform variable on +-a has variance a^2 / 3.
    const float amplitude = std::sqrt(3.0f / static_cast<float>(inputs));
    return backend_.PackRandom(outputs, inputs, fits ? format_ : WeightFormat::kBf16, amplitude,
                               seed);
  }

  Result<std::vector<float>> Vector(const std::string& name, int64_t size, float) override {
    const bool is_bias = name.size() > 5 && name.ends_with(".bias");
    return std::vector<float>(static_cast<size_t>(size), is_bias ? 0.0f : 1.0f);
  }

  std::vector<std::string> Unused() const override { return {}; }

 private:
  Backend& backend_;
  const WeightFormat format_;
};

}  // namespace

std::unique_ptr<WeightSource> MakeCheckpointWeights(const Checkpoint& checkpoint, Backend& backend,
                                                    std::optional<WeightFormat> format) {
  return std::make_unique<CheckpointWeights>(checkpoint, backend, format);
}

std::unique_ptr<WeightSource> MakeRandomWeights(Backend& backend, WeightFormat format) {
  return std::make_unique<RandomWeights>(backend, format);
}

}  // namespace kvasir
