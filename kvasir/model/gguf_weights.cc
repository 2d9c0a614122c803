// Weights of a GGUF file under the names that a decoder asks for.
// Deliberately undoes what converters do to llama's queries and keys, so that there is one RoPE.
#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_set>

#include "kvasir/model/gguf_names.h"
#include "kvasir/model/stored_weights.h"

namespace kvasir {
namespace {

class GgufWeights final : public StoredWeights {
 public:
  GgufWeights(const GgufFile& file, const ModelConfig& config, Backend& backend,
              const StoredWeightsOptions& options)
      : StoredWeights(backend, options),
        file_(file),
        config_(config),
        family_(config.family),
        head_dim_(config.head_dim) {
    // Parts of the config.
    for (const char* const divisors :
         {"rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"}) {
      used_.insert(divisors);
    }
  }

  bool Has(const std::string& name) const override { return file_.Find(FileName(name)) != nullptr; }

  std::vector<int64_t> Shape(const std::string& name) const override {
    const GgufEntry* const entry = file_.Find(FileName(name));
    return entry == nullptr ? std::vector<int64_t>() : entry->shape;
  }

  std::vector<std::string> Unused() const override {
    std::vector<std::string> unused;
    for (const std::string& name : file_.names()) {
      if (!used_.contains(name)) unused.push_back(name);
    }
    return unused;
  }

 protected:
  Result<WeightTensor> Take(const std::string& name, const std::vector<int64_t>& shape) override {
    const std::string file_name = FileName(name);
    // A matrix of one row may be stored as that.
    const bool is_row = shape.size() == 2 && shape[0] == 1 && Shape(name).size() == 1;
    KVASIR_TRY(WeightTensor tensor,
               file_.Get(file_name, is_row ? std::vector<int64_t>{shape[1]} : shape));
    tensor.shape = shape;
    used_.insert(file_name);
    const std::string scale_name = GgufScaleName(family_, file_name);
    if (file_.Find(scale_name) != nullptr) {
      KVASIR_TRY_OK(ScaleBy(scale_name, &tensor));
    }
    if (!HasInterleavedRows(family_, name)) return tensor;
    return shape.size() == 2 ? InDecoderOrder(std::move(tensor)) : BiasInDecoderOrder(tensor);
  }

  std::string Where(const std::string& name) const override {
    return file_.path() + ": tensor '" + FileName(name) + "'";
  }

 private:
  // By a tensor of one number, of a stack one for each matrix.
  Status ScaleBy(const std::string& name, WeightTensor* weights) {
    const int64_t matrices = weights->shape.size() > 2 ? weights->shape[0] : 1;
    KVASIR_TRY(const WeightTensor scale, file_.Get(name, {matrices}));
    used_.insert(name);
    std::vector<float> values(static_cast<size_t>(matrices));
    scale.read_row(0, values.data());
    if (!std::all_of(values.begin(), values.end(), [](float x) { return std::isfinite(x); })) {
      return {ErrorCode::kCorrupt, file_.path() + ": tensor '" + name + "' is not finite"};
    }
    ScaleMatrices(std::move(values), weights);
    return {};
  }

  WeightTensor InDecoderOrder(WeightTensor tensor) const {
    const int64_t head_dim = head_dim_;
    tensor.read_row = [head_dim, stored = std::move(tensor.read_row)](int64_t row, float* out) {
      stored(InterleavedRow(row, head_dim), out);
    };
    if (tensor.read_codes) {
      tensor.read_codes = [head_dim, stored = std::move(tensor.read_codes)](int64_t row,
                                                                            CodedRow* out) {
        stored(InterleavedRow(row, head_dim), out);
      };
    }
    tensor.is_raw = false;
    return tensor;
  }

  WeightTensor BiasInDecoderOrder(const WeightTensor& tensor) const {
    std::vector<float> stored(static_cast<size_t>(tensor.shape[0]));
    tensor.read_row(0, stored.data());
    const int64_t head_dim = head_dim_;
    WeightTensor ordered = tensor;
    ordered.read_row = [head_dim, stored](int64_t, float* out) {
      for (size_t i = 0; i < stored.size(); ++i) {
        out[i] = stored[static_cast<size_t>(InterleavedRow(static_cast<int64_t>(i), head_dim))];
      }
    };
    ordered.is_raw = false;
    return ordered;
  }

  std::string FileName(const std::string& name) const {
    // What Ollama may call LFM2's.
    constexpr const char* kOtherNorm = "output_norm.weight";
    std::string file_name = GgufTensorName(config_, name);
    const bool is_other = name == "norm.weight" && file_.Find(file_name) == nullptr;
    return is_other && file_.Find(kOtherNorm) != nullptr ? kOtherNorm : file_name;
  }

  const GgufFile& file_;
  const ModelConfig config_;
  const ModelFamily family_;
  const int64_t head_dim_;
  std::unordered_set<std::string> used_;
};

}  // namespace

std::unique_ptr<WeightSource> MakeGgufWeights(const GgufFile& file, const ModelConfig& config,
                                              Backend& backend,
                                              const StoredWeightsOptions& options) {
  return std::make_unique<GgufWeights>(file, config, backend, options);
}

std::unique_ptr<StoredWeights> MakeGgufTensors(const GgufFile& file, const ModelConfig& config,
                                               Backend& backend) {
  return std::make_unique<GgufWeights>(file, config, backend, StoredWeightsOptions{});
}

}  // namespace kvasir
