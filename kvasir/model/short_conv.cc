#include "kvasir/model/short_conv.h"

#include <utility>

#include "kvasir/model/recurrent_tensors.h"

namespace kvasir {

using Buffer = Workspace::Buffer;

Result<std::unique_ptr<const RecurrentLayer>> ShortConv::Load(const DecoderSpec& spec,
                                                              const std::string& prefix,
                                                              WeightSource& source) {
  const int64_t hidden = spec.hidden_size;
  const bool has_bias = spec.short_conv.has_bias;
  const std::string module = prefix + "conv.";
  auto conv = std::make_unique<ShortConv>();
  // One stored matrix has all three, in this order.
  std::vector<float> biases;
  if (has_bias) {
    KVASIR_TRY(biases, source.Vector(module + "in_proj.bias", 3 * hidden, 0));
  }
  int64_t first = 0;
  for (Linear* const part : {&conv->before_, &conv->after_, &conv->value_}) {
    KVASIR_TRY(part->weights, source.Rows({.name = module + "in_proj.weight",
                                           .shape = {3 * hidden, hidden},
                                           .first_row = first,
                                           .rows = hidden}));
    if (has_bias) part->bias.assign(biases.begin() + first, biases.begin() + first + hidden);
    first += hidden;
  }
  KVASIR_TRY(conv->conv_, LoadTaps(source, module + "conv.weight", hidden, spec.short_conv.width));
  KVASIR_TRY(conv->out_.weights, source.Matrix(module + "out_proj.weight", hidden, hidden));
  if (has_bias) {
    KVASIR_TRY(conv->conv_biases_, source.Vector(module + "conv.bias", hidden, 0));
    KVASIR_TRY(conv->out_.bias, source.Vector(module + "out_proj.bias", hidden, 0));
  }
  return std::unique_ptr<const RecurrentLayer>(std::move(conv));
}

void ShortConv::Run(const DecoderSpec& spec, Backend& backend, Workspace& workspace,
                    std::span<const std::vector<StateRun>> rounds, ConstFloatRows x,
                    FloatRows out) const {
  const FloatRows before = workspace.Rows(Buffer::kMixed, x.rows, spec.hidden_size);
  const FloatRows after = workspace.Rows(Buffer::kGate, x.rows, spec.hidden_size);
  const FloatRows value = workspace.Rows(Buffer::kAttended, x.rows, spec.hidden_size);
  const FloatRows convolved = workspace.Rows(Buffer::kConvolved, x.rows, spec.hidden_size);
  const MatmulJob in[] = {before_.job(before), after_.job(after), value_.job(value)};
  backend.Matmul(x, in);
  backend.Gate(GateActivation::kNone, before, value);
  ShortConvArgs args = {.runs = {},
                        .width = spec.short_conv.width,
                        .x = before,
                        .conv = conv_,
                        .biases = conv_biases_,
                        .out = convolved};
  for (const std::vector<StateRun>& round : rounds) {
    args.runs = round;
    backend.ShortConv(args);
  }
  backend.Gate(GateActivation::kNone, after, convolved);
  const MatmulJob back[] = {out_.job(out)};
  backend.Matmul(after, back);
}

}  // namespace kvasir
