// StoredWeights: what every source of weights that lies in files has in common: decoding a tensor
// into the form the backend wants. Deliberately knows no format: those find the tensors.
#ifndef KVASIR_MODEL_STORED_WEIGHTS_H_
#define KVASIR_MODEL_STORED_WEIGHTS_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvasir/model/weight_source.h"
#include "kvasir/tensor/weight_tensor.h"

namespace kvasir {

// How a matrix lies in memory where nobody asks for a format: as it is stored, but bf16 is
// multiplied in bf16.
WeightFormat FormatInMemory(const WeightTensor& tensor);

class StoredWeights : public WeightSource {
 public:
  Result<std::unique_ptr<const WeightMatrix>> Matrix(const std::string& name, int64_t outputs,
                                                     int64_t inputs) override;
  Result<std::unique_ptr<const WeightMatrix>> ExactMatrix(const std::string& name, int64_t outputs,
                                                          int64_t inputs) override;
  Result<std::unique_ptr<const WeightMatrix>> Rows(const MatrixSlice& slice) override;
  Result<std::unique_ptr<const WeightMatrix>> RowsAsColumns(const MatrixSlice& slice) override;
  Result<std::unique_ptr<const WeightMatrix>> Gathered(const std::string& name, int64_t outputs,
                                                       int64_t inputs,
                                                       std::span<const int64_t> rows,
                                                       bool is_exact) override;
  Result<std::vector<float>> Vector(const std::string& name, int64_t size, float offset) override;
  Result<std::vector<float>> Numbers(const std::string& name,
                                     const std::vector<int64_t>& shape) override;
  // What is packed, before it is. ERRORS: as Take.
  Result<WeightTensor> Tensor(const std::string& name, const std::vector<int64_t>& shape) {
    return Take(name, shape);
  }
  Result<WeightTensor> Slice(const MatrixSlice& slice);

 protected:
  StoredWeights(Backend& backend, const StoredWeightsOptions& options)
      : backend_(backend), format_(options.format), cache_(options.cache) {}

  // The tensor of exactly this shape, noted as used. ERRORS: kNotFound, kCorrupt, kUnsupported,
  // naming file and tensor.
  virtual Result<WeightTensor> Take(const std::string& name, const std::vector<int64_t>& shape) = 0;
  // "model.gguf: tensor 'blk.0.attn_q.weight'": what errors about `name` begin with.
  virtual std::string Where(const std::string& name) const = 0;

 private:
  // What is to be packed. `part` tells matrices of one tensor apart.
  struct Part {
    const std::string& name;
    std::string part;
  };
  Result<std::unique_ptr<const WeightMatrix>> Pack(const Part& part, const WeightTensor& tensor,
                                                   WeightFormat format) const;

  Backend& backend_;
  const std::optional<WeightFormat> format_;
  PackedWeightsCache* const cache_;
};

// MakeGgufWeights and MakeCheckpointWeights, every matrix in the type it is stored in, for whoever
// wants the rows.
std::unique_ptr<StoredWeights> MakeGgufTensors(const GgufFile& file, const ModelConfig& config,
                                               Backend& backend);
std::unique_ptr<StoredWeights> MakeCheckpointTensors(const Checkpoint& checkpoint,
                                                     const ModelConfig& config, Backend& backend);

}  // namespace kvasir

#endif  // KVASIR_MODEL_STORED_WEIGHTS_H_
