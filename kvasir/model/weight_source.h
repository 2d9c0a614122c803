// WeightSource: where a decoder's tensors come from: a safetensors checkpoint, a GGUF file, or
// nowhere (made up, so that real shapes can be measured without their files).
// Deliberately knows no family: names and shapes are asked for by the decoder.
#ifndef KVASIR_MODEL_WEIGHT_SOURCE_H_
#define KVASIR_MODEL_WEIGHT_SOURCE_H_

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvasir/backend/backend.h"
#include "kvasir/formats/checkpoint.h"
#include "kvasir/formats/gguf.h"
#include "kvasir/formats/model_config.h"
#include "kvasir/model/packed_weights_cache.h"

namespace kvasir {

// Some rows of a stored tensor that holds several matrices: those of one expert, say.
struct MatrixSlice {
  std::string name;
  std::vector<int64_t> shape;  // of the whole tensor; the last extent is the matrix's inputs
  int64_t first_row = 0;       // counted over all other extents
  int64_t rows = 0;
  int64_t row_step = 1;  // from row to row; divides the rows of each matrix
  // Each matrix is stored with its inputs before its outputs; `shape` and rows are counted as if it
  // were not. Only of dense tensors.
  bool is_transposed = false;
  // What they are called where they are a tensor of their own; empty where no checkpoint has such.
  std::string alone;
};

class WeightSource {
 public:
  virtual ~WeightSource() = default;

  // Names are without the checkpoint's prefix: "layers.0.self_attn.q_proj.weight".
  virtual bool Has(const std::string& name) const = 0;
  // As it is stored; empty where there is no such tensor, or none is stored.
  virtual std::vector<int64_t> Shape(const std::string&) const { return {}; }
  // ERRORS: kNotFound, kCorrupt (shape or type), naming the tensor.
  virtual Result<std::unique_ptr<const WeightMatrix>> Matrix(const std::string& name,
                                                             int64_t outputs, int64_t inputs) = 0;
  // Every decoded value, times activations that are not rounded, whatever format was asked for:
  // small matrices whose errors decide, such as routers. ERRORS: as Matrix.
  virtual Result<std::unique_ptr<const WeightMatrix>> ExactMatrix(const std::string& name,
                                                                  int64_t outputs,
                                                                  int64_t inputs) = 0;
  // ERRORS: as Matrix. REQUIRES: the rows lie within the shape.
  virtual Result<std::unique_ptr<const WeightMatrix>> Rows(const MatrixSlice& slice) = 0;
  // Rows of a stored matrix as columns of one with as many inputs, [inputs of the slice, rows]: the
  // values that codes say, as floats. ERRORS: as Gathered. REQUIRES: as Rows, and a slice without
  // steps that is not transposed already.
  virtual Result<std::unique_ptr<const WeightMatrix>> RowsAsColumns(const MatrixSlice& slice);
  // The given rows of a stored matrix, in that order; `is_exact`: as ExactMatrix. ERRORS: as
  // Matrix, and kUnsupported where a source has no such thing. REQUIRES: the rows lie within it.
  virtual Result<std::unique_ptr<const WeightMatrix>> Gathered(const std::string& name,
                                                               int64_t outputs, int64_t inputs,
                                                               std::span<const int64_t> rows,
                                                               bool is_exact);
  // A vector of whole numbers. ERRORS: as Gathered.
  virtual Result<std::vector<int64_t>> Integers(const std::string& name, int64_t size);
  // offset is added to every element (norms stored around 0).
  virtual Result<std::vector<float>> Vector(const std::string& name, int64_t size,
                                            float offset) = 0;
  // All numbers of a small tensor of whatever shape, row by row. ERRORS: as Matrix.
  virtual Result<std::vector<float>> Numbers(const std::string& name,
                                             const std::vector<int64_t>& shape) = 0;
  // Names in the source that nobody asked for, sorted.
  virtual std::vector<std::string> Unused() const = 0;
};

struct StoredWeightsOptions {
  // Unset: every matrix keeps the type it is stored in (WeightTensor::stored_format). Quantized
  // formats apply to matrices whose inputs are a multiple of 32; others stay as they are.
  std::optional<WeightFormat> format;
  // Where matrices are found packed, or put once they are; null: nowhere. Borrowed.
  PackedWeightsCache* cache = nullptr;
};

// Both the checkpoint and `config`, which says how its matrices are called and quantized, are
// borrowed.
std::unique_ptr<WeightSource> MakeCheckpointWeights(const Checkpoint& checkpoint,
                                                    const ModelConfig& config, Backend& backend,
                                                    const StoredWeightsOptions& options);

// The same for a GGUF file, which is borrowed.
std::unique_ptr<WeightSource> MakeGgufWeights(const GgufFile& file, const ModelConfig& config,
                                              Backend& backend,
                                              const StoredWeightsOptions& options);

// Uniform weights scaled by 1/sqrt(inputs), so that activations neither vanish nor explode; norms
// are ones. A function of the tensors' names.
std::unique_ptr<WeightSource> MakeRandomWeights(Backend& backend, WeightFormat format);

}  // namespace kvasir

#endif  // KVASIR_MODEL_WEIGHT_SOURCE_H_
