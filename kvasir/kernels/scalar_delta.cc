// The oracle of layers with a state: their convolution, gates and rules as plain loops.
// Deliberately slow: it exists to be read and compared against.
#include <cmath>

#include "kvasir/base/scalar_math.h"
#include "kvasir/kernels/table_parts.h"

namespace kvasir {
namespace {

float Sigmoid(float x) { return 1.0f / (1.0f + scalar::Exp(-x)); }

// Input i of a channel, counted from the oldest of the history.
float InputOf(const CausalConvArgs& args, int64_t i, int64_t channel) {
  const int64_t row = i - (args.width - 1);
  if (row >= 0) return args.x[row * args.x_stride + channel];
  return args.history == nullptr ? 0.0f : args.history[i * args.history_stride + channel];
}

void CausalConv(const CausalConvArgs& args) noexcept {
  for (int64_t c = args.channel_begin; c < args.channel_end; ++c) {
    for (int64_t row = 0; row < args.rows; ++row) {
      float sum = args.biases == nullptr ? 0.0f : args.biases[c];
      for (int64_t j = 0; j < args.width; ++j) {
        sum = std::fma(InputOf(args, row + j, c), args.weights[j * args.weight_stride + c], sum);
      }
      args.out[row * args.out_stride + c] = args.has_silu ? sum / (1.0f + scalar::Exp(-sum)) : sum;
    }
    // In place too: what is read lies behind what is written.
    for (int64_t j = 0; j < args.width - 1; ++j) {
      args.next_history[j * args.history_stride + c] = InputOf(args, args.rows + j, c);
    }
  }
}

void DeltaGates(const DeltaGateArgs& args) noexcept {
  for (int64_t h = 0; h < args.heads; ++h) {
    const float softplus = scalar::Softplus(args.decay_inputs[h] + args.biases[h]);
    const float step = args.step_inputs == nullptr ? softplus : Sigmoid(args.step_inputs[h]);
    args.decays[h] = scalar::Exp(-(args.rates[h] * softplus));
    args.steps[h] = step;
  }
}

// kIsDelta: a token writes by how much its value differs from what the state knows of its key.
template <bool kIsDelta>
void StateRule(const DeltaRuleArgs& args) noexcept {
  for (int64_t lane = 0; lane < args.lanes; ++lane) {
    for (int64_t r = 0; r < args.key_dim; ++r) {
      const int64_t at = r * args.state_stride + lane;
      args.next[at] = args.state == nullptr ? 0.0f : args.state[at];
    }
    for (int64_t row = 0; row < args.rows; ++row) {
      const float* const q = args.queries + row * args.stride;
      const float* const k = args.keys + row * args.stride;
      const float decay = args.decays[row * args.gate_stride];
      const float value = args.values[row * args.stride + lane];
      float written = value;
      if constexpr (kIsDelta) {
        float sum = 0;
        for (int64_t r = 0; r < args.key_dim; ++r) {
          sum = std::fma(args.next[r * args.state_stride + lane], k[r], sum);
        }
        written = std::fma(-decay, sum, value);
      }
      const float delta = args.steps[row * args.gate_stride] * written;
      float out = 0;
      for (int64_t r = 0; r < args.key_dim; ++r) {
        float& s = args.next[r * args.state_stride + lane];
        s = std::fma(k[r], delta, s * decay);
        out = std::fma(s, q[r], out);
      }
      args.out[row * args.out_stride + lane] = kIsDelta ? out : std::fma(args.skip, value, out);
    }
  }
}

}  // namespace

void FillScalarDelta(KernelTable* table) {
  table->causal_conv = CausalConv;
  table->delta_gates = DeltaGates;
  table->delta_rule = StateRule<true>;
  table->mamba_rule = StateRule<false>;
}

}  // namespace kvasir
