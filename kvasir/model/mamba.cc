#include "kvasir/model/mamba.h"

#include <cstdint>
#include <numeric>
#include <utility>

#include "kvasir/model/recurrent_tensors.h"

namespace kvasir {

using Buffer = Workspace::Buffer;

// Checkpoints have x, B and C in this order; the backend wants queries, keys and values: C, B, x.
struct Mamba::Loader {
  const DeltaShape& shape;
  const int64_t hidden;
  const std::string prefix;  // "layers.3.mamba."
  WeightSource& source;

  int64_t keys() const { return shape.key_heads * shape.key_dim; }
  int64_t values() const { return shape.value_heads * shape.value_dim; }

  // Of the channels as they are stored, in the backend's order.
  std::vector<int64_t> ChannelOrder() const {
    std::vector<int64_t> order(static_cast<size_t>(shape.channels()));
    auto to = order.begin();
    for (const auto& [begin, count] :
         {std::pair{values() + keys(), keys()}, std::pair{values(), keys()},
          std::pair{int64_t{0}, values()}}) {
      std::iota(to, to + count, begin);
      to += count;
    }
    return order;
  }

  // The rows of one matrix: gates, channels, steps.
  Status LoadProjections(Mamba* mamba) const {
    const std::string name = prefix + "in_proj.weight";
    const int64_t outputs = values() + shape.channels() + shape.value_heads;
    std::vector<int64_t> rows = ChannelOrder();
    for (int64_t& row : rows) row += values();
    KVASIR_TRY(mamba->mixed_, source.Gathered(name, outputs, hidden, rows, false));
    const auto slice = [&](int64_t first, int64_t count) {
      return source.Rows(
          {.name = name, .shape = {outputs, hidden}, .first_row = first, .rows = count});
    };
    KVASIR_TRY(mamba->gate_, slice(0, values()));
    // Numbers whose error all later tokens inherit.
    std::vector<int64_t> steps(static_cast<size_t>(shape.value_heads));
    std::iota(steps.begin(), steps.end(), values() + shape.channels());
    KVASIR_TRY(mamba->step_, source.Gathered(name, outputs, hidden, steps, true));
    KVASIR_TRY(mamba->out_, source.Matrix(prefix + "out_proj.weight", hidden, values()));
    return {};
  }

  Status LoadConvolution(bool has_bias, Mamba* mamba) const {
    const int64_t channels = shape.channels();
    const std::vector<int64_t> order = ChannelOrder();
    KVASIR_TRY(const std::vector<float> taps,
               LoadTaps(source, prefix + "conv1d.weight", channels, shape.conv_width));
    for (int64_t tap = 0; tap < shape.conv_width; ++tap) {
      for (const int64_t channel : order) {
        mamba->conv_.push_back(taps[static_cast<size_t>(tap * channels + channel)]);
      }
    }
    if (!has_bias) return {};
    KVASIR_TRY(const std::vector<float> biases, source.Vector(prefix + "conv1d.bias", channels, 0));
    for (const int64_t channel : order) {
      mamba->conv_biases_.push_back(biases[static_cast<size_t>(channel)]);
    }
    return {};
  }
};

Result<std::unique_ptr<const RecurrentLayer>> Mamba::Load(const DecoderSpec& spec,
                                                          const std::string& prefix,
                                                          WeightSource& source) {
  const DeltaShape& shape = spec.delta_net;
  const Loader loader{shape, spec.hidden_size, prefix + "mamba.", source};
  auto mamba = std::make_unique<Mamba>();
  KVASIR_TRY_OK(loader.LoadProjections(mamba.get()));
  KVASIR_TRY_OK(loader.LoadConvolution(spec.has_conv_bias, mamba.get()));
  const int64_t heads = shape.value_heads;
  KVASIR_TRY(mamba->decay_rates_, LoadDecayRates(source, loader.prefix, heads));
  KVASIR_TRY(mamba->step_biases_, source.Vector(loader.prefix + "dt_bias", heads, 0));
  KVASIR_TRY(mamba->skips_, LoadNumbers(source, loader.prefix + "D", heads));
  KVASIR_TRY(mamba->norm_, LoadNumbers(source, loader.prefix + "norm.weight", loader.values()));
  return std::unique_ptr<const RecurrentLayer>(std::move(mamba));
}

void Mamba::Run(const DecoderSpec& spec, Backend& backend, Workspace& workspace,
                std::span<const std::vector<StateRun>> rounds, ConstFloatRows x,
                FloatRows out) const {
  const DeltaShape& shape = spec.delta_net;
  const int64_t heads = shape.value_heads;
  const int64_t values = heads * shape.value_dim;
  const FloatRows mixed = workspace.Rows(Buffer::kMixed, x.rows, shape.channels());
  const FloatRows gate = workspace.Rows(Buffer::kGate, x.rows, values);
  const FloatRows step = workspace.Rows(Buffer::kDeltaSteps, x.rows, heads);
  const MatmulJob in[] = {
      {mixed_.get(), nullptr, mixed}, {gate_.get(), nullptr, gate}, {step_.get(), nullptr, step}};
  backend.Matmul(x, in);
  const FloatRows read = workspace.Rows(Buffer::kAttended, x.rows, values);
  DeltaNetArgs args = {.shape = shape,
                       .runs = {},
                       .mixed = mixed,
                       .decay_inputs = step,
                       .step_inputs = {},
                       .conv = conv_,
                       .conv_biases = conv_biases_,
                       .decay_rates = decay_rates_,
                       .decay_biases = step_biases_,
                       .skips = skips_,
                       .convolved = workspace.Rows(Buffer::kConvolved, x.rows, shape.channels()),
                       .gates = workspace.Rows(Buffer::kDeltaGates, x.rows, 2 * heads),
                       .out = read};
  for (const std::vector<StateRun>& round : rounds) {
    args.runs = round;
    backend.DeltaNet(args);
  }
  backend.Gate(GateActivation::kSilu, gate, read);
  const int64_t group = values / shape.key_heads;
  for (int64_t begin = 0; begin < values; begin += group) {
    const FloatRows part = {gate.data + begin, gate.rows, group, gate.stride};
    const auto weights =
        std::span(norm_).subspan(static_cast<size_t>(begin), static_cast<size_t>(group));
    backend.RmsNorm(part, weights, spec.norm_eps, part);
  }
  const MatmulJob back[] = {{out_.get(), nullptr, out}};
  backend.Matmul(gate, back);
}

}  // namespace kvasir
