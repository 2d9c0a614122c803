// What the kernels of layers with a state take: short convolutions, gated delta nets (Yang et al.,
// arXiv 2412.06464) and Mamba-2 (Dao, Gu, arXiv 2405.21060).
// Deliberately one sequence and one head at a time: the backend knows the layer.
#ifndef KVASIR_KERNELS_DELTA_NET_H_
#define KVASIR_KERNELS_DELTA_NET_H_

#include <cstdint>

namespace kvasir {

// A causal depthwise convolution over the tokens of a sequence, maybe then silu, for the channels
// [channel_begin, channel_end). With the last input of a token its own, from the bias or 0:
//   sum = fma chain over the `width` inputs, the oldest first, of input * weight
//   out = sum, or sum / (1 + exp(-sum))
struct CausalConvArgs {
  const float* x = nullptr;  // [rows, channels]
  int64_t x_stride = 0;
  int64_t rows = 0;
  const float* weights = nullptr;  // [width, channels], the oldest input's first
  int64_t weight_stride = 0;
  int64_t width = 0;
  const float* biases = nullptr;  // [channels]; null: zeros
  bool has_silu = true;
  // The width - 1 inputs before the first row, [width - 1, channels], oldest first; null: zeros.
  const float* history = nullptr;
  float* next_history = nullptr;  // those before the row after the last; may be `history`
  int64_t history_stride = 0;     // of both
  int64_t channel_begin = 0;
  int64_t channel_end = 0;
  float* out = nullptr;  // [rows, channels]; not x
  int64_t out_stride = 0;
};

// What a token's heads forget and take in, [heads] each. out may be the inputs.
//   decay = exp(-(rate * softplus(decay_input + bias)));  step = 1 / (1 + exp(-step_input))
// Without step_inputs step = softplus(decay_input + bias), as Mamba-2 has it.
struct DeltaGateArgs {
  const float* decay_inputs = nullptr;
  const float* step_inputs = nullptr;  // or null
  const float* rates = nullptr;
  const float* biases = nullptr;
  int64_t heads = 0;
  float* decays = nullptr;
  float* steps = nullptr;
};

// The delta rule over the tokens of a sequence in order, for some lanes (columns) of one head's
// state S [key_dim, value_dim]. With k, q, v, decay and step of a token, r ascending over key_dim:
//   sum[lane]   = fma chain from 0 of S[r][lane] * k[r]
//   delta[lane] = step * fma(-decay, sum[lane], v[lane])
//   S[r][lane]  = fma(k[r], delta[lane], S[r][lane] * decay)
//   out[lane]   = fma chain from 0 of S[r][lane] * q[r]
// What Mamba-2 has in its place does not look at what the state knows of a key, but adds a part of
// the value:
//   delta[lane] = step * v[lane]
//   out[lane]   = fma(skip, v[lane], the same chain)
struct DeltaRuleArgs {
  int64_t rows = 0;  // > 0
  int64_t key_dim = 0;
  int64_t lanes = 0;
  const float* queries = nullptr;  // [rows, key_dim]
  const float* keys = nullptr;     // [rows, key_dim]
  const float* values = nullptr;   // [rows, lanes]
  int64_t stride = 0;              // of these three
  const float* decays = nullptr;   // [rows], gate_stride apart, as the next
  const float* steps = nullptr;
  int64_t gate_stride = 0;
  float skip = 0;                // of Mamba-2 only
  const float* state = nullptr;  // [key_dim, lanes] before the first row; null: zeros
  float* next = nullptr;         // after the last; may be `state`, else they do not overlap
  int64_t state_stride = 0;      // of both
  float* out = nullptr;          // [rows, lanes]
  int64_t out_stride = 0;
};

}  // namespace kvasir

#endif  // KVASIR_KERNELS_DELTA_NET_H_
