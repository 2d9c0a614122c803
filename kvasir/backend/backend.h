// Backend: the coarse operations a decoder is made of. One virtual call covers a whole step's rows
// of one layer, so the cost of the call vanishes and a device can do as it likes inside.
// Deliberately no graph, no autograd, no tensors that own memory: callers pass views.
//
// Every operation computes a row of its output from the same row of its input (and, for Attend,
// from that row's visible cache rows) in one fixed order: the bits never depend on how many rows
// there are, which threads ran, or what the neighbours hold (docs/numerics.md).
#ifndef KVASIR_BACKEND_BACKEND_H_
#define KVASIR_BACKEND_BACKEND_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "kvasir/base/result.h"
#include "kvasir/base/token.h"
#include "kvasir/tensor/derived_key.h"
#include "kvasir/tensor/float_rows.h"
#include "kvasir/tensor/kv_blocks_view.h"
#include "kvasir/tensor/kv_layout.h"
#include "kvasir/tensor/packed_matrix.h"
#include "kvasir/tensor/tensor_view.h"
#include "kvasir/tensor/weight_tensor.h"

namespace kvasir {

// Weights [outputs, inputs] in the form one backend wants them. Immutable.
class WeightMatrix {
 public:
  virtual ~WeightMatrix() = default;
  virtual int64_t outputs() const = 0;
  virtual int64_t inputs() const = 0;
  virtual WeightFormat format() const = 0;
  virtual size_t bytes() const = 0;
  // The panels it consists of; null where a backend has another form.
  virtual const PackedMatrix* panels() const { return nullptr; }
};

// out = x * weights^T + bias
struct MatmulJob {
  const WeightMatrix* weights = nullptr;
  const float* bias = nullptr;  // [outputs] or null
  // [rows, outputs], or [rows, fewer] where only the first of them are wanted: a multiple of
  // kPanelOutputs.
  FloatRows out;
};

// The new tokens of one sequence in a step.
struct KvRun {
  KvBlocksView kv;        // the sequence's blocks of this layer, new rows included
  int64_t first_row = 0;  // cache row of the run's first token
  int64_t step_row = 0;   // row of the step's activations that holds it
  int64_t rows = 0;       // tokens in the run
  // Blocks that hold the last rows once more, in layout.RecentBlock(), from the first row on that
  // a query of the run reads there; empty unless layout.dense_recent > 0.
  KvBlocksView recent = {};
  // Positions of the rows [0, first_row + rows), where keys are from-value and rows are not at
  // their own positions because others were evicted; empty: row r is at position r.
  std::span<const Position> positions = {};
};

struct AttendArgs {
  KvLayout layout;  // of every run's cache
  // The runs' rows, written before they are read, as EncodeKv does; without data: they are there.
  ConstFloatRows new_keys;      // [rows, kv_heads * key_dim]
  ConstFloatRows new_values;    // [rows, kv_heads * value_dim]
  int query_heads = 0;          // a multiple of layout.kv_heads; head h reads kv head h / (ratio)
  float scale = 1;              // multiplies queries
  float softcap = 0;            // on scores; 0: off
  KvKeyDerivation derivation;   // only if layout.key_codec is from-value
  ConstFloatRows queries;       // [rows, query_heads * key_dim]
  std::span<const KvRun> runs;  // disjoint step rows
  std::span<const VisibleRows> visible;  // [rows]: what each query may read; never empty
  // [query_heads] or null: scores of rows that every query of a head sees besides, whose values are
  // 0. Not scaled, capped or stored.
  const float* sinks = nullptr;
  FloatRows out;  // [rows, query_heads * value_dim]
};

// kClamped: KernelTable::clamped_gate. kSigmoid has the gate in its exponent alone:
// up / (1 + exp(-gate)). kNone: gate * up.
enum class GateActivation { kSilu, kGeluTanh, kClamped, kSigmoid, kNone };

// The new tokens of one sequence in a step, and the state of its recurrent layer, aligned as floats
// are. What a run writes is no other run's.
struct StateRun {
  const std::byte* state = nullptr;  // before the run; null: all zero
  std::byte* next = nullptr;         // after it; may be the same, else they do not overlap
  int64_t step_row = 0;              // row of the step's activations of the first token
  int64_t rows = 0;                  // > 0
};

// The sizes of a gated delta net (Yang et al., arXiv 2412.06464) behind its projections, or of
// Mamba-2 (Dao, Gu, arXiv 2405.21060), seen as linear attention: its C are queries, its B keys, its
// x values, its groups key heads, its dt both step and what decays grow with.
struct DeltaShape {
  enum class Rule { kGatedDelta, kMamba };
  Rule rule = Rule::kGatedDelta;
  int key_heads = 0;
  int value_heads = 0;  // a multiple of key_heads
  int64_t key_dim = 0;
  int64_t value_dim = 0;
  int64_t conv_width = 0;  // >= 2: inputs that a convolution sees, the token's own last

  // Value head h reads key head h % key_heads; else h / (value_heads / key_heads).
  bool is_tiled = false;

  int key_head_of(int value_head) const {
    return is_tiled ? value_head % key_heads : value_head / (value_heads / key_heads);
  }
  int64_t channels() const { return 2 * key_heads * key_dim + value_heads * value_dim; }
  // The last conv_width - 1 inputs of the convolution, [conv_width - 1, channels], oldest first,
  // then [value_heads, key_dim, value_dim], all float32.
  size_t state_bytes() const {
    return static_cast<size_t>((conv_width - 1) * channels() + value_heads * key_dim * value_dim) *
           sizeof(float);
  }
};

struct DeltaNetArgs {
  DeltaShape shape;
  std::span<const StateRun> runs;       // disjoint step rows
  ConstFloatRows mixed;                 // [rows, channels]: queries, keys, values before the
                                        // convolution
  ConstFloatRows decay_inputs;          // [rows, value_heads]: a; of Mamba-2 dt
  ConstFloatRows step_inputs;           // [rows, value_heads]: b; not of Mamba-2
  std::span<const float> conv;          // [conv_width, channels]
  std::span<const float> conv_biases;   // [channels]; empty: zeros
  std::span<const float> decay_rates;   // [value_heads], exp(A_log), >= 0
  std::span<const float> decay_biases;  // [value_heads], dt_bias
  std::span<const float> skips;         // [value_heads], D; of Mamba-2 only
  FloatRows convolved;                  // [rows, channels], scratch
  FloatRows gates;                      // [rows, 2 * value_heads], scratch
  FloatRows out;                        // [rows, value_heads * value_dim]
};

// A causal depthwise convolution over time, without an activation.
struct ShortConvArgs {
  std::span<const StateRun> runs;  // disjoint step rows
  // The inputs a convolution sees, the token's own last; >= 2. A state is those before the next
  // token, [width - 1, channels], oldest first, float32.
  int64_t width = 0;
  ConstFloatRows x;               // [rows, channels]
  std::span<const float> conv;    // [width, channels]
  std::span<const float> biases;  // [channels]; empty: zeros
  FloatRows out;                  // [rows, channels]; not x
};

// Which experts every row goes through, and with what weight.
struct RouteArgs {
  // What a router's outputs become.
  enum class Scores { kSoftmax, kSigmoid };
  FloatRows scores;  // [rows, experts] router outputs; what they hold afterwards means nothing
  int per_row = 0;   // <= experts
  Scores kind = Scores::kSoftmax;
  // [experts] are added to scores for choosing, not to weights; empty: nothing is.
  std::span<const float> choice_biases;
  // Experts lie in so many groups of as many each, and a row's are chosen among those of its best
  // groups: by their largest score, of sigmoids by the sum of the two largest, biases added. The
  // first of equals is the better one. REQUIRES: there are so many in them; of sigmoids, groups of
  // two at least.
  int groups = 1;
  int groups_per_row = 1;
  bool normalizes = false;  // the weights of a row are divided by their sum and sum_eps
  float sum_eps = 0;
  std::span<const float> expert_scales;  // [experts] multiply weights at last; empty: all 1
  float scale = 1;                       // likewise
  std::span<int32_t> chosen;             // out: [rows * per_row], the most probable first
  std::span<float> weights;              // out: [rows * per_row]
};

// One gated MLP: down(activation(gate x) * up x).
struct ExpertWeights {
  const WeightMatrix* gate = nullptr;  // [intermediate, hidden]
  const WeightMatrix* up = nullptr;    // [intermediate, hidden]
  const WeightMatrix* down = nullptr;  // [hidden, intermediate]
  const float* gate_bias = nullptr;    // [intermediate] or null, as the next
  const float* up_bias = nullptr;
  const float* down_bias = nullptr;  // [hidden] or null
};

struct ExpertsArgs {
  std::span<const ExpertWeights> experts;  // of equal shapes
  GateActivation activation = GateActivation::kSilu;
  ConstFloatRows x;                 // [rows, hidden]
  int per_row = 0;                  // experts of one row
  std::span<const int32_t> chosen;  // [rows * per_row], from Route
  std::span<const float> weights;   // [rows * per_row]
  FloatRows out;                    // [rows, hidden]
};

// The largest operations of a step.
struct StepShape {
  struct Attention {  // of a layer
    int kv_heads = 0;
    int64_t head_dim = 0;
  };
  int64_t rows = 0;    // of all but the head's matmul
  int64_t logits = 0;  // rows of that
  int64_t inputs = 0;  // of any matmul but those of experts
  int query_heads = 0;
  std::vector<Attention> layers;
  // Rows go through so many experts each; 0: there are none.
  int64_t experts_of_row = 0;
  int64_t expert_hidden = 0;
  int64_t expert_intermediate = 0;
};

class Backend {
 public:
  virtual ~Backend() = default;

  // "cpu, avx512, 2 threads"
  virtual std::string Describe() const = 0;
  // Bytes the backend holds for itself between calls.
  virtual size_t scratch_bytes() const = 0;
  // Upper bound of scratch_bytes() in steps of this shape, with the weights that there are, but for
  // softmax states of ranges of tokens that wait for each other: those take 16 MiB at most, or what
  // one range needs.
  virtual size_t ScratchBound(const StepShape& shape) const = 0;
  // Bytes of weights that matmuls were given so far, each matrix once per call and of experts only
  // those chosen: what had to be read from memory, at least.
  virtual uint64_t weight_bytes_read() const = 0;

  // Packs weights of shape [outputs, inputs] in any encoding, one row at a time; `format` says how
  // they are stored. ERRORS: kInvalidArgument (inputs unsuitable for a quantized format),
  // kResourceExhausted. REQUIRES: two extents.
  virtual Result<std::unique_ptr<const WeightMatrix>> PackRows(const WeightTensor& weights,
                                                               WeightFormat format) = 0;
  // Weights that PackRows of such a backend packed at another time, with TraitsOfPacked: what is
  // multiplied with them is multiplied with the scale too, before a bias is added, and inputs are
  // taken in their order. ERRORS: kUnsupported where WeightMatrix::panels are null.
  // REQUIRES: an order is a permutation of the matrix's inputs.
  virtual Result<std::unique_ptr<const WeightMatrix>> Adopt(PackedMatrix matrix,
                                                            PackedTraits traits) = 0;
  // Pseudo-random weights, uniform in +-amplitude, a function of `seed` alone: for measuring real
  // shapes without their files. ERRORS: as PackRows.
  virtual Result<std::unique_ptr<const WeightMatrix>> PackRandom(int64_t outputs, int64_t inputs,
                                                                 WeightFormat format,
                                                                 float amplitude,
                                                                 uint64_t seed) = 0;

  // out[i] = table[tokens[i]] * scale. REQUIRES: 0 <= token < table.outputs().
  virtual void Embed(const WeightMatrix& table, std::span<const Token> tokens, float scale,
                     FloatRows out) = 0;
  // Each row as heads of weight.size() numbers, each normalised by its root mean square, times
  // weight. x and out may be the same.
  virtual void RmsNorm(ConstFloatRows x, std::span<const float> weight, float eps,
                       FloatRows out) = 0;
  // All jobs read the same x [rows, inputs].
  virtual void Matmul(ConstFloatRows x, std::span<const MatmulJob> jobs) = 0;
  // Job i reads rows [i * n, (i + 1) * n) of x [jobs * n, inputs]: matrices that have an input of
  // their own each, as heads do.
  virtual void MatmulEach(ConstFloatRows x, std::span<const MatmulJob> jobs) = 0;
  // Rotates each row's heads of head_dim numbers in place, half-split pairing. cos and sin are
  // [rows, head_dim / 2].
  virtual void Rope(FloatRows x, int64_t head_dim, ConstFloatRows cos, ConstFloatRows sin) = 0;
  // Writes each run's keys [rows, kv_heads * key_dim] (unless they are from-value: then they are
  // looked at for their norms only) and values into its blocks: all of the main
  // ones, of the recent ones those held. Keeps key norms if the layout has them.
  virtual void EncodeKv(const KvLayout& layout, std::span<const KvRun> runs, ConstFloatRows keys,
                        ConstFloatRows values) = 0;
  // Writes the queries [rows, layout.query_floats] of rows in the observed block, if any are.
  virtual void RecordQueries(const KvLayout& layout, std::span<const KvRun> runs,
                             ConstFloatRows queries) = 0;
  // Softmax of each query's scores with what it sees, times the values. Writing the step's rows
  // here and not by EncodeKv saves few queries waiting for all of them.
  virtual void Attend(const AttendArgs& args) = 0;
  // gate = activation(gate) * up
  virtual void Gate(GateActivation activation, FloatRows gate, ConstFloatRows up) = 0;
  // Each row times the sigmoid of its number in gates [rows, 1].
  virtual void GateRows(FloatRows x, ConstFloatRows gates) = 0;
  // For every token of a run, in order: a causal depthwise convolution over time of `mixed`, then
  // silu; queries and keys divided by their length (per head, eps 1e-6 under the root, of the sum
  // of squares), queries also by sqrt(key_dim); with decay = exp(-rate * softplus(a + bias)) and
  // beta = sigmoid(b) of each value head, the state S [key_dim, value_dim] of the head:
  //   S *= decay; delta = beta * (v - S^T k); S += k delta^T; out = S^T q
  // Of Mamba-2 queries and keys stay as they are, and with dt = softplus(a + bias)
  //   S = S * exp(-rate * dt) + k (dt * v)^T; out = S^T q + skip * v
  // A run's results depend on its tokens alone, not on how a sequence is cut into runs.
  virtual void DeltaNet(const DeltaNetArgs& args) = 0;
  // For every token of a run: the sum of what the last `width` tokens have, each times its weight.
  // A run's results depend on its tokens alone.
  virtual void ShortConv(const ShortConvArgs& args) = 0;
  virtual void Add(FloatRows accumulator, ConstFloatRows x) = 0;
  virtual void Scale(FloatRows x, float factor) = 0;
  // Softmax over a row's scores, or the sigmoid of each; the per_row largest of them, or of their
  // sums with choice_biases, are its weights, the lowest index of equals first.
  virtual void Route(const RouteArgs& args) = 0;
  // out = sum over a row's experts, in the order chosen, of weight * expert(x), each product
  // rounded. Only the weights of experts that some row chose are read.
  virtual void Experts(const ExpertsArgs& args) = 0;
  // x = cap * tanh(x / cap)
  virtual void Softcap(FloatRows x, float cap) = 0;
};

}  // namespace kvasir

#endif  // KVASIR_BACKEND_BACKEND_H_
