// RecurrentLayer: what a layer with a state has in place of attention.
// Deliberately without the layer's norm and residual, which decoder_layers.cc knows.
#ifndef KVASIR_MODEL_RECURRENT_LAYER_H_
#define KVASIR_MODEL_RECURRENT_LAYER_H_

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvasir/model/decoder_spec.h"
#include "kvasir/model/weight_source.h"
#include "kvasir/model/workspace.h"

namespace kvasir {

class RecurrentLayer {
 public:
  // The kind that the spec has, from the tensors under `prefix` ("layers.3."). ERRORS: as
  // WeightSource.
  static Result<std::unique_ptr<const RecurrentLayer>> Load(const DecoderSpec& spec,
                                                            const std::string& prefix,
                                                            WeightSource& source);
  virtual ~RecurrentLayer() = default;

  // Takes states through rows of x [rows, hidden_size]; out, of the same size: what they read of
  // them. `rounds`: runs of different sequences each, one round after the other.
  virtual void Run(const DecoderSpec& spec, Backend& backend, Workspace& workspace,
                   std::span<const std::vector<StateRun>> rounds, ConstFloatRows x,
                   FloatRows out) const = 0;

  virtual std::vector<const WeightMatrix*> Matrices() const = 0;
};

// What a recurrent layer takes in the workspace for a row.
struct RecurrentRow {
  int64_t attended = 0;  // floats of kAttended
  int64_t gate = 0;      // of kGate
  int64_t others = 0;    // of buffers that no other layer has
};
RecurrentRow RecurrentRowOf(const DecoderSpec& spec);

}  // namespace kvasir

#endif  // KVASIR_MODEL_RECURRENT_LAYER_H_
