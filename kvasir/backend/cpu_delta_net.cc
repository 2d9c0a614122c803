#include "kvasir/backend/cpu_delta_net.h"

#include <algorithm>
#include <cmath>

#include "kvasir/backend/for_rows.h"
#include "kvasir/base/check.h"

namespace kvasir {
namespace {

constexpr float kLengthEps = 1e-6f;
// Columns of a state that are handed to threads together: as many as the kernels of AVX2 keep in
// registers, two cache lines.
constexpr int64_t kLaneBlock = 32;
// What a number of the convolution costs, in those that kForkNumbers counts: an exponential, a
// division and a multiply-add for each input.
constexpr int64_t kConvCost = 4;
// Channels of a short convolution that are handed to threads together: two cache lines.
constexpr int64_t kChannelBlock = 32;

class DeltaNetStep {
 public:
  DeltaNetStep(const KernelTable& kernels, const DeltaNetArgs& args)
      : kernels_(kernels),
        args_(args),
        shape_(args.shape),
        lane_blocks_((shape_.value_dim + kLaneBlock - 1) / kLaneBlock) {}

  // The units of a run that come before its state: heads of queries, keys and values, then the
  // gates of all heads.
  int64_t input_units() const { return value_begin() + shape_.value_heads + 1; }
  // Blocks of columns of every head's state.
  int64_t state_units() const { return shape_.value_heads * lane_blocks_; }

  void MakeInputs(const StateRun& run, int64_t begin, int64_t end) const {
    const int64_t gates = input_units() - 1;
    if (end > gates) MakeGates(run);
    Convolve(run, ChannelOf(begin), ChannelOf(std::min(end, gates)));
    if (is_mamba()) return;
    for (int64_t head = begin; head < std::min(end, value_begin()); ++head) {
      Normalise(run, head);
    }
  }

  void Update(const StateRun& run, int64_t begin, int64_t end) const {
    while (begin < end) {
      const int64_t head = begin / lane_blocks_;
      const int64_t head_end = std::min(end, (head + 1) * lane_blocks_);
      const int64_t lane = (begin - head * lane_blocks_) * kLaneBlock;
      const int64_t lane_end =
          std::min((head_end - head * lane_blocks_) * kLaneBlock, shape_.value_dim);
      UpdateLanes(run, head, lane, lane_end);
      begin = head_end;
    }
  }

 private:
  bool is_mamba() const { return shape_.rule == DeltaShape::Rule::kMamba; }
  // Heads before those of values.
  int64_t value_begin() const { return 2 * shape_.key_heads; }

  int64_t ChannelOf(int64_t head) const {
    const int64_t values = std::max<int64_t>(head - value_begin(), 0);
    return (head - values) * shape_.key_dim + values * shape_.value_dim;
  }

  void Convolve(const StateRun& run, int64_t begin, int64_t end) const {
    if (begin >= end) return;
    kernels_.causal_conv({.x = args_.mixed.row(run.step_row),
                          .x_stride = args_.mixed.stride,
                          .rows = run.rows,
                          .weights = args_.conv.data(),
                          .weight_stride = shape_.channels(),
                          .width = shape_.conv_width,
                          .biases = args_.conv_biases.empty() ? nullptr : args_.conv_biases.data(),
                          .history = reinterpret_cast<const float*>(run.state),
                          .next_history = reinterpret_cast<float*>(run.next),
                          .history_stride = shape_.channels(),
                          .channel_begin = begin,
                          .channel_end = end,
                          .out = args_.convolved.row(run.step_row),
                          .out_stride = args_.convolved.stride});
  }

  // The length by way of the root mean square: x / sqrt(sum + eps) = (x / sqrt(sum / dim + eps /
  // dim)) / sqrt(dim).
  void Normalise(const StateRun& run, int64_t head) const {
    const auto dim = static_cast<float>(shape_.key_dim);
    const float factor = head < shape_.key_heads ? 1.0f / dim : 1.0f / std::sqrt(dim);
    for (int64_t row = run.step_row; row < run.step_row + run.rows; ++row) {
      float* const x = args_.convolved.row(row) + head * shape_.key_dim;
      kernels_.rms_norm(x, nullptr, kLengthEps / dim, shape_.key_dim, x);
      kernels_.scale(x, factor, shape_.key_dim);
    }
  }

  void MakeGates(const StateRun& run) const {
    for (int64_t row = run.step_row; row < run.step_row + run.rows; ++row) {
      kernels_.delta_gates({.decay_inputs = args_.decay_inputs.row(row),
                            .step_inputs = is_mamba() ? nullptr : args_.step_inputs.row(row),
                            .rates = args_.decay_rates.data(),
                            .biases = args_.decay_biases.data(),
                            .heads = shape_.value_heads,
                            .decays = args_.gates.row(row),
                            .steps = args_.gates.row(row) + shape_.value_heads});
    }
  }

  void UpdateLanes(const StateRun& run, int64_t head, int64_t lane, int64_t lane_end) const {
    const int64_t key_head = shape_.key_head_of(static_cast<int>(head));
    const float* const convolved = args_.convolved.row(run.step_row);
    const float* const gates = args_.gates.row(run.step_row);
    const int64_t at = (shape_.conv_width - 1) * shape_.channels() +
                       head * shape_.key_dim * shape_.value_dim + lane;
    const auto rule = is_mamba() ? kernels_.mamba_rule : kernels_.delta_rule;
    rule({.rows = run.rows,
          .key_dim = shape_.key_dim,
          .lanes = lane_end - lane,
          .queries = convolved + ChannelOf(key_head),
          .keys = convolved + ChannelOf(shape_.key_heads + key_head),
          .values = convolved + ChannelOf(value_begin() + head) + lane,
          .stride = args_.convolved.stride,
          .decays = gates + head,
          .steps = gates + shape_.value_heads + head,
          .gate_stride = args_.gates.stride,
          .skip = is_mamba() ? args_.skips[static_cast<size_t>(head)] : 0.0f,
          .state = run.state == nullptr ? nullptr : reinterpret_cast<const float*>(run.state) + at,
          .next = reinterpret_cast<float*>(run.next) + at,
          .state_stride = shape_.value_dim,
          .out = args_.out.row(run.step_row) + head * shape_.value_dim + lane,
          .out_stride = args_.out.stride});
  }

  const KernelTable& kernels_;
  const DeltaNetArgs& args_;
  const DeltaShape& shape_;
  const int64_t lane_blocks_;  // of a head
};

// Runs body(run, begin, end) on pieces of the units [0, units) of every run.
template <typename Body>
void ForUnits(ThreadPool& pool, std::span<const StateRun> runs, int64_t units, bool forks,
              const Body& body) {
  const auto pieces = [&](size_t begin, size_t end) {
    auto at = static_cast<int64_t>(begin);
    const auto last = static_cast<int64_t>(end);
    while (at < last) {
      const int64_t run = at / units;
      const int64_t run_end = std::min(last, (run + 1) * units);
      body(runs[static_cast<size_t>(run)], at - run * units, run_end - run * units);
      at = run_end;
    }
  };
  const size_t count = runs.size() * static_cast<size_t>(units);
  if (forks) {
    pool.For(count, pieces);
  } else {
    pieces(0, count);
  }
}

int64_t RowsOf(std::span<const StateRun> runs) {
  int64_t rows = 0;
  for (const StateRun& run : runs) {
    KVASIR_CHECK(run.rows > 0 && run.next != nullptr);
    rows += run.rows;
  }
  return rows;
}

void CheckShapes(const DeltaNetArgs& args) {
  const DeltaShape& shape = args.shape;
  const auto heads = static_cast<size_t>(shape.value_heads);
  KVASIR_CHECK(shape.key_heads > 0 && shape.value_heads % shape.key_heads == 0);
  KVASIR_CHECK(shape.conv_width >= 2 && args.mixed.cols == shape.channels());
  KVASIR_CHECK(args.conv.size() == static_cast<size_t>(shape.conv_width * shape.channels()));
  KVASIR_CHECK(args.decay_rates.size() == heads && args.decay_biases.size() == heads);
  KVASIR_CHECK(args.conv_biases.empty() ||
               args.conv_biases.size() == static_cast<size_t>(shape.channels()));
  KVASIR_CHECK(shape.rule != DeltaShape::Rule::kMamba || args.skips.size() == heads);
  KVASIR_CHECK(args.convolved.cols >= shape.channels() && args.gates.cols >= 2 * shape.value_heads);
}

}  // namespace

void RunDeltaNet(const KernelTable& kernels, ThreadPool& pool, const DeltaNetArgs& args) {
  CheckShapes(args);
  const DeltaNetStep step(kernels, args);
  const DeltaShape& shape = args.shape;
  const int64_t rows = RowsOf(args.runs);
  if (rows == 0) return;
  const bool forks = kConvCost * rows * shape.channels() >= kForkNumbers * pool.threads();
  ForUnits(
      pool, args.runs, step.input_units(), forks,
      [&](const StateRun& run, int64_t begin, int64_t end) { step.MakeInputs(run, begin, end); });
  ForUnits(pool, args.runs, step.state_units(), true,
           [&](const StateRun& run, int64_t begin, int64_t end) { step.Update(run, begin, end); });
}

void RunShortConv(const KernelTable& kernels, ThreadPool& pool, const ShortConvArgs& args) {
  const int64_t channels = args.x.cols;
  KVASIR_CHECK(args.width >= 2 && args.out.cols == channels && args.out.data != args.x.data);
  KVASIR_CHECK(args.conv.size() == static_cast<size_t>(args.width * channels));
  KVASIR_CHECK(args.biases.empty() || args.biases.size() == static_cast<size_t>(channels));
  const int64_t rows = RowsOf(args.runs);
  if (rows == 0) return;
  const bool forks = rows * channels >= kForkNumbers * pool.threads();
  const int64_t blocks = (channels + kChannelBlock - 1) / kChannelBlock;
  ForUnits(pool, args.runs, blocks, forks, [&](const StateRun& run, int64_t begin, int64_t end) {
    kernels.causal_conv({.x = args.x.row(run.step_row),
                         .x_stride = args.x.stride,
                         .rows = run.rows,
                         .weights = args.conv.data(),
                         .weight_stride = channels,
                         .width = args.width,
                         .biases = args.biases.empty() ? nullptr : args.biases.data(),
                         .has_silu = false,
                         .history = reinterpret_cast<const float*>(run.state),
                         .next_history = reinterpret_cast<float*>(run.next),
                         .history_stride = channels,
                         .channel_begin = begin * kChannelBlock,
                         .channel_end = std::min(end * kChannelBlock, channels),
                         .out = args.out.row(run.step_row),
                         .out_stride = args.out.stride});
  });
}

}  // namespace kvasir
