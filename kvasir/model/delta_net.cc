#include "kvasir/model/delta_net.h"

#include <algorithm>
#include <utility>

#include "kvasir/model/recurrent_tensors.h"

namespace kvasir {
namespace {

using Buffer = Workspace::Buffer;

}  // namespace

// Rows of matrices that join what belongs to one key head.
struct DeltaNet::Loader {
  const DeltaShape& shape;
  const int64_t hidden;
  const std::string prefix;  // "layers.3.linear_attn."
  WeightSource& source;

  int64_t ratio() const { return shape.value_heads / shape.key_heads; }
  int64_t value_size() const { return shape.value_heads * shape.value_dim; }

  Result<Matrix> Whole(const char* name, int64_t outputs) {
    return source.Matrix(prefix + name + ".weight", outputs, hidden);
  }

  // A number for each value head, whose error all later tokens inherit.
  Result<Matrix> Exact(const char* name) {
    return source.ExactMatrix(prefix + name + ".weight", shape.value_heads, hidden);
  }

  // Of every key head's rows, `head_rows`, those from `begin` on.
  void AddPart(int64_t head_rows, int64_t begin, int64_t count, std::vector<int64_t>* rows) const {
    for (int64_t head = 0; head < shape.key_heads; ++head) {
      for (int64_t i = 0; i < count; ++i) rows->push_back(head * head_rows + begin + i);
    }
  }

  // GGUF files of Qwen3-Next have only the first of both pairs apart.
  bool IsJoined(const char* apart, const char* joined) const {
    return !source.Has(prefix + apart + ".weight") && source.Has(prefix + joined + ".weight");
  }

  // Per key head: its query, its key, the values of its heads, their gates.
  Status LoadMixed(DeltaNet* net) {
    if (!IsJoined("in_proj_qkv", "in_proj_qkvz")) {
      KVASIR_TRY(net->mixed_, Whole("in_proj_qkv", shape.channels()));
      KVASIR_TRY(net->gate_, Whole("in_proj_z", value_size()));
      return {};
    }
    const int64_t values = ratio() * shape.value_dim;
    const int64_t head_rows = 2 * shape.key_dim + 2 * values;
    const int64_t outputs = shape.key_heads * head_rows;
    std::vector<int64_t> mixed;
    AddPart(head_rows, 0, shape.key_dim, &mixed);
    AddPart(head_rows, shape.key_dim, shape.key_dim, &mixed);
    AddPart(head_rows, 2 * shape.key_dim, values, &mixed);
    std::vector<int64_t> gate;
    AddPart(head_rows, 2 * shape.key_dim + values, values, &gate);
    const std::string joined = prefix + "in_proj_qkvz.weight";
    KVASIR_TRY(net->mixed_, source.Gathered(joined, outputs, hidden, mixed, false));
    KVASIR_TRY(net->gate_, source.Gathered(joined, outputs, hidden, gate, false));
    return {};
  }

  // Per key head: the steps of its value heads, their decays.
  Status LoadNumbers(DeltaNet* net) {
    if (!IsJoined("in_proj_b", "in_proj_ba")) {
      KVASIR_TRY(net->step_, Exact("in_proj_b"));
      KVASIR_TRY(net->decay_, Exact("in_proj_a"));
      return {};
    }
    std::vector<int64_t> step;
    AddPart(2 * ratio(), 0, ratio(), &step);
    std::vector<int64_t> decay;
    AddPart(2 * ratio(), ratio(), ratio(), &decay);
    const std::string numbers = prefix + "in_proj_ba.weight";
    KVASIR_TRY(net->step_, source.Gathered(numbers, 2 * shape.value_heads, hidden, step, true));
    KVASIR_TRY(net->decay_, source.Gathered(numbers, 2 * shape.value_heads, hidden, decay, true));
    return {};
  }

  Status LoadDecays(DeltaNet* net) {
    KVASIR_TRY(net->decay_rates_, LoadDecayRates(source, prefix, shape.value_heads));
    // Some GGUF files call them as a matrix would be called.
    const std::string biases = prefix + (source.Has(prefix + "dt") ? "dt" : "dt_bias");
    KVASIR_TRY(net->decay_biases_, source.Vector(biases, shape.value_heads, 0));
    return {};
  }
};

Result<std::unique_ptr<const RecurrentLayer>> DeltaNet::Load(const DecoderSpec& spec,
                                                             const std::string& prefix,
                                                             WeightSource& source) {
  const DeltaShape& shape = spec.delta_net;
  Loader loader{shape, spec.hidden_size, prefix + "linear_attn.", source};
  auto net = std::make_unique<DeltaNet>();
  KVASIR_TRY_OK(loader.LoadMixed(net.get()));
  KVASIR_TRY_OK(loader.LoadNumbers(net.get()));
  KVASIR_TRY_OK(loader.LoadDecays(net.get()));
  KVASIR_TRY(net->conv_,
             LoadTaps(source, loader.prefix + "conv1d.weight", shape.channels(), shape.conv_width));
  KVASIR_TRY(net->norm_, source.Vector(loader.prefix + "norm.weight", shape.value_dim, 0));
  KVASIR_TRY(net->out_, source.Matrix(loader.prefix + "out_proj.weight", spec.hidden_size,
                                      loader.value_size()));
  return std::unique_ptr<const RecurrentLayer>(std::move(net));
}

void DeltaNet::Run(const DecoderSpec& spec, Backend& backend, Workspace& workspace,
                   std::span<const std::vector<StateRun>> rounds, ConstFloatRows x,
                   FloatRows out) const {
  const DeltaShape& shape = spec.delta_net;
  const int64_t heads = shape.value_heads;
  const FloatRows mixed = workspace.Rows(Buffer::kMixed, x.rows, shape.channels());
  const FloatRows gate = workspace.Rows(Buffer::kGate, x.rows, heads * shape.value_dim);
  const FloatRows step = workspace.Rows(Buffer::kDeltaSteps, x.rows, heads);
  const FloatRows decay = workspace.Rows(Buffer::kDeltaDecays, x.rows, heads);
  const MatmulJob in[] = {{mixed_.get(), nullptr, mixed},
                          {gate_.get(), nullptr, gate},
                          {step_.get(), nullptr, step},
                          {decay_.get(), nullptr, decay}};
  backend.Matmul(x, in);
  const FloatRows read = workspace.Rows(Buffer::kAttended, x.rows, heads * shape.value_dim);
  DeltaNetArgs args = {.shape = shape,
                       .runs = {},
                       .mixed = mixed,
                       .decay_inputs = decay,
                       .step_inputs = step,
                       .conv = conv_,
                       .conv_biases = {},
                       .decay_rates = decay_rates_,
                       .decay_biases = decay_biases_,
                       .skips = {},
                       .convolved = workspace.Rows(Buffer::kConvolved, x.rows, shape.channels()),
                       .gates = workspace.Rows(Buffer::kDeltaGates, x.rows, 2 * heads),
                       .out = read};
  for (const std::vector<StateRun>& round : rounds) {
    args.runs = round;
    backend.DeltaNet(args);
  }
  backend.RmsNorm(read, norm_, spec.norm_eps, read);
  backend.Gate(GateActivation::kSilu, gate, read);
  const MatmulJob back[] = {{out_.get(), nullptr, out}};
  backend.Matmul(gate, back);
}

}  // namespace kvasir
