#include "kvasir/backend/cpu_backend.h"

#include <algorithm>
#include <string>
#include <vector>

#include "kvasir/backend/cpu_attention.h"
#include "kvasir/backend/cpu_delta_net.h"
#include "kvasir/backend/cpu_experts.h"
#include "kvasir/backend/cpu_kv_rows.h"
#include "kvasir/backend/for_rows.h"
#include "kvasir/backend/matmul_inputs.h"
#include "kvasir/backend/ordered_inputs.h"
#include "kvasir/backend/panel_packer.h"
#include "kvasir/backend/weight_lookahead.h"
#include "kvasir/base/check.h"
#include "kvasir/base/file.h"
#include "kvasir/base/scalar_math.h"
#include "kvasir/base/system_info.h"
#include "kvasir/base/thread_pool.h"

namespace kvasir {
namespace {

// Panels are handed to threads in fours, the width of the kernels' register tile.
constexpr int64_t kPanelTile = 4;
// Rows for which it is worth reading all weights once more: at two operations for each of them and
// a byte of weights a core then reads less than 3 GB/s.
constexpr int64_t kBandRows = 192;
// Few rows wait for weights. Of steps with many the last layers leave out what nobody wants, so
// their matmuls come in another order.
constexpr int64_t kLookaheadRows = 64;
constexpr int kMaxThreads = 1024;

class CpuWeightMatrix final : public WeightMatrix {
 public:
  explicit CpuWeightMatrix(PackedMatrix matrix, PackedTraits traits = {})
      : matrix_(std::make_shared<const PackedMatrix>(std::move(matrix))),
        traits_(std::move(traits)) {}
  int64_t outputs() const override { return matrix_->outputs(); }
  int64_t inputs() const override { return matrix_->inputs(); }
  WeightFormat format() const override { return matrix_->format(); }
  size_t bytes() const override { return matrix_->bytes(); }
  const PackedMatrix* panels() const override { return matrix_.get(); }
  const std::shared_ptr<const PackedMatrix>& matrix() const { return matrix_; }
  const PackedTraits& traits() const { return traits_; }

 private:
  // Shared with whoever reads ahead.
  std::shared_ptr<const PackedMatrix> matrix_;
  const PackedTraits traits_;
};

const std::shared_ptr<const PackedMatrix>& SharedPacked(const WeightMatrix& weights) {
  return static_cast<const CpuWeightMatrix&>(weights).matrix();
}

const PackedMatrix& Packed(const WeightMatrix& weights) { return *SharedPacked(weights); }

const PackedTraits& TraitsOf(const WeightMatrix& weights) {
  return static_cast<const CpuWeightMatrix&>(weights).traits();
}

const std::vector<int32_t>* OrderOf(const RowsMatmul& part) {
  return TraitsOf(*part.job.weights).input_order.get();
}

// splitmix64 (Steele, Lea, Flood 2014): one multiply chain per number keeps filling a billion
// random weights in seconds.
uint64_t Mix(uint64_t x) {
  x += 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(const KernelTable& kernels, int threads, const CpuBackendOptions& options)
      : kernels_(kernels),
        prefetching_(options.prefetching),
        lookahead_(threads, kPanelTile),
        pool_(threads, &lookahead_),
        attention_({kernels, options.attention, options.prefetching.kv}, pool_),
        ordered_(pool_),
        inputs_(kernels, pool_) {}

  std::string Describe() const override {
    return "cpu, " + std::string(IsaName(kernels_.isa)) + ", " + std::to_string(pool_.threads()) +
           (pool_.threads() == 1 ? " thread" : " threads");
  }

  size_t scratch_bytes() const override {
    return inputs_.bytes() + ordered_.bytes() + attention_.scratch_bytes() +
           experts_.scratch_bytes();
  }

  size_t ScratchBound(const StepShape& shape) const override {
    const int64_t rows = std::max(shape.rows, shape.logits);
    const int64_t pairs = shape.rows * shape.experts_of_row;
    const int64_t expert_inputs = std::max(shape.expert_hidden, shape.expert_intermediate);
    // Rows in orders of their own: three matrices share what they multiply at most.
    const int64_t orders = orders_.empty() ? 1 : 3;
    const int64_t gathered =
        orders_.empty() ? 0 : std::max(rows * shape.inputs, pairs * expert_inputs);
    const int threads = pool_.threads();
    return std::max(MatmulInputs::Bound(orders * rows, shape.inputs, threads),
                    MatmulInputs::Bound(orders * pairs, expert_inputs, threads)) +
           static_cast<size_t>(orders * gathered) * sizeof(float) +
           CpuExperts::Bound(pairs, shape.expert_hidden, shape.expert_intermediate) +
           attention_.ScratchBound(shape);
  }

  uint64_t weight_bytes_read() const override { return weight_bytes_read_; }

  Result<std::unique_ptr<const WeightMatrix>> PackRows(const WeightTensor& weights,
                                                       WeightFormat format) override {
    KVASIR_CHECK(weights.shape.size() == 2);
    KVASIR_TRY(PackedMatrix matrix, PackedMatrix::Allocate(weights.shape[0], weights.shape[1],
                                                           format, weights.affine, &arena_));
    pool_.For(static_cast<size_t>(matrix.panels()), [&](size_t begin, size_t end) {
      PanelPacker packer(weights, &matrix);
      for (size_t panel = begin; panel < end; ++panel) packer.Pack(static_cast<int64_t>(panel));
    });
    // Also what packers have given back already: faults of their neighbours bring pages around
    // them along.
    if (weights.is_mapped) {
      for (const std::span<const std::byte> source : weights.source) ReleasePages(source);
    }
    return Adopt(std::move(matrix), TraitsOfPacked(weights, format));
  }

  Result<std::unique_ptr<const WeightMatrix>> Adopt(PackedMatrix matrix,
                                                    PackedTraits traits) override {
    if (traits.input_order) traits.input_order = OneOf(std::move(traits.input_order));
    return std::unique_ptr<const WeightMatrix>(
        std::make_unique<CpuWeightMatrix>(std::move(matrix), std::move(traits)));
  }

  Result<std::unique_ptr<const WeightMatrix>> PackRandom(int64_t outputs, int64_t inputs,
                                                         WeightFormat format, float amplitude,
                                                         uint64_t seed) override {
    WeightTensor random;
    random.shape = {outputs, inputs};
    random.read_row = [=](int64_t output, float* row) {
      const uint64_t base = Mix(seed) + static_cast<uint64_t>(output * inputs);
      for (int64_t k = 0; k < inputs; ++k) {
        const int32_t bits = static_cast<int32_t>(Mix(base + static_cast<uint64_t>(k)) >> 32);
        row[k] = static_cast<float>(bits) * 0x1.0p-31f * amplitude;
      }
    };
    return PackRows(random, format);
  }

  void Embed(const WeightMatrix& table, std::span<const Token> tokens, float scale,
             FloatRows out) override {
    const PackedMatrix& matrix = Packed(table);
    ForRows(static_cast<int64_t>(tokens.size()), matrix.inputs(), [&](int64_t i) {
      const Token token = tokens[static_cast<size_t>(i)];
      KVASIR_CHECK(token >= 0 && token < matrix.outputs());
      const PackedTraits& traits = TraitsOf(table);
      GetRow(matrix, token, traits.input_order, out.row(i));
      if (traits.scale != 1) kernels_.scale(out.row(i), traits.scale, matrix.inputs());
      kernels_.scale(out.row(i), scale, matrix.inputs());
    });
  }

  void RmsNorm(ConstFloatRows x, std::span<const float> weight, float eps, FloatRows out) override {
    const int64_t width = static_cast<int64_t>(weight.size());
    KVASIR_CHECK(width > 0 && x.cols % width == 0);
    ForRows(x.rows, x.cols, [&](int64_t i) {
      for (int64_t begin = 0; begin < x.cols; begin += width) {
        kernels_.rms_norm(x.row(i) + begin, weight.data(), eps, width, out.row(i) + begin);
      }
    });
  }

  void Matmul(ConstFloatRows x, std::span<const MatmulJob> jobs) override {
    // Many rows are cut into bands, which threads begin with in their order, as they do with rows
    // of other operations. So a core reads what it wrote itself.
    const int64_t bands = std::clamp<int64_t>(x.rows / kBandRows, 1, pool_.threads());
    std::vector<RowsMatmul> parts;
    for (int64_t band = 0; band < bands; ++band) {
      const int64_t begin = x.rows * band / bands;
      const int64_t count = x.rows * (band + 1) / bands - begin;
      for (const MatmulJob& job : jobs) {
        parts.push_back({{job.weights, job.bias, job.out.Part(begin, count)}, begin, count});
      }
    }
    MatmulRows(x, parts, bands);
  }

  void MatmulEach(ConstFloatRows x, std::span<const MatmulJob> jobs) override {
    const int64_t rows = x.rows / static_cast<int64_t>(jobs.size());
    KVASIR_CHECK(rows * static_cast<int64_t>(jobs.size()) == x.rows);
    std::vector<RowsMatmul> parts;
    for (const MatmulJob& job : jobs) {
      parts.push_back({job, static_cast<int64_t>(parts.size()) * rows, rows});
    }
    MatmulRows(x, parts);
  }

  void Rope(FloatRows x, int64_t head_dim, ConstFloatRows cos, ConstFloatRows sin) override {
    ForRows(x.rows, x.cols, [&](int64_t i) {
      for (int64_t begin = 0; begin < x.cols; begin += head_dim) {
        kernels_.rope(x.row(i) + begin, cos.row(i), sin.row(i), head_dim / 2);
      }
    });
  }

  void EncodeKv(const KvLayout& layout, std::span<const KvRun> runs, ConstFloatRows keys,
                ConstFloatRows values) override {
    EncodeKvRows(kernels_, pool_, layout, runs, keys, values);
  }

  void RecordQueries(const KvLayout& layout, std::span<const KvRun> runs,
                     ConstFloatRows queries) override {
    RecordQueryRows(layout, runs, queries);
  }

  void Attend(const AttendArgs& args) override { attention_.Attend(args); }

  void Gate(GateActivation activation, FloatRows gate, ConstFloatRows up) override {
    const auto kernel = GateOf(activation);
    ForRows(gate.rows, gate.cols, [&](int64_t i) { kernel(gate.row(i), up.row(i), gate.cols); });
  }

  void GateRows(FloatRows x, ConstFloatRows gates) override {
    ForRows(x.rows, x.cols, [&](int64_t i) {
      kernels_.scale(x.row(i), 1.0f / (1.0f + scalar::Exp(-gates.row(i)[0])), x.cols);
    });
  }

  void DeltaNet(const DeltaNetArgs& args) override { RunDeltaNet(kernels_, pool_, args); }
  void ShortConv(const ShortConvArgs& args) override { RunShortConv(kernels_, pool_, args); }

  void Add(FloatRows accumulator, ConstFloatRows x) override {
    ForRows(x.rows, x.cols, [&](int64_t i) { kernels_.add(accumulator.row(i), x.row(i), x.cols); });
  }

  void Scale(FloatRows x, float factor) override {
    ForRows(x.rows, x.cols, [&](int64_t i) { kernels_.scale(x.row(i), factor, x.cols); });
  }

  void Route(const RouteArgs& args) override {
    ForRows(args.scores.rows, args.scores.cols, [&](int64_t i) { RouteRow(kernels_, args, i); });
  }

  void Experts(const ExpertsArgs& args) override {
    const ExpertPlan& plan = experts_.Gather(args);
    MatmulRows(plan.x, plan.in);
    Gate(args.activation, plan.gate, plan.up);
    MatmulRows(plan.gate, plan.out);
    ForRows(args.out.rows, args.out.cols, [&](int64_t i) { experts_.SumRow(args, i); });
  }

  void Softcap(FloatRows x, float cap) override {
    ForRows(x.rows, x.cols, [&](int64_t i) { kernels_.softcap(x.row(i), cap, x.cols); });
  }

 private:
  decltype(KernelTable::silu_gate) GateOf(GateActivation activation) const {
    switch (activation) {
      case GateActivation::kSilu:
        return kernels_.silu_gate;
      case GateActivation::kGeluTanh:
        return kernels_.gelu_tanh_gate;
      case GateActivation::kClamped:
        return kernels_.clamped_gate;
      case GateActivation::kSigmoid:
        return kernels_.sigmoid_gate;
      case GateActivation::kNone:
        return kernels_.product_gate;
    }
    KVASIR_CHECK(false);
  }

  // Matrices that read the same inputs are quantized with them, in one order: one vector for all.
  InputOrder OneOf(InputOrder order) {
    for (const std::weak_ptr<const std::vector<int32_t>>& known : orders_) {
      if (InputOrder same = known.lock(); same && *same == *order) return same;
    }
    std::erase_if(orders_, [](const auto& known) { return known.expired(); });
    orders_.push_back(order);
    return order;
  }

  static void GetRow(const PackedMatrix& matrix, Token token, const InputOrder& order, float* out) {
    if (!order) return matrix.GetRow(token, out);
    std::vector<float> row(order->size());
    matrix.GetRow(token, row.data());
    for (size_t i = 0; i < row.size(); ++i) out[(*order)[i]] = row[i];
  }

  // Runs body(row) for every row, on several threads when that pays.
  template <typename Body>
  void ForRows(int64_t rows, int64_t cols, const Body& body) {
    kvasir::ForRows(pool_, rows, cols, body);
  }

  static int64_t PanelsOf(const RowsMatmul& part) {
    return std::min(Packed(*part.job.weights).panels(),
                    (part.job.out.cols + kPanelOutputs - 1) / kPanelOutputs);
  }
  static int64_t TilesOf(const RowsMatmul& part) {
    return (PanelsOf(part) + kPanelTile - 1) / kPanelTile;
  }

  // Every part reads its own rows of x; the tiles of all are spread over the threads together.
  // Parts of the same matrices follow each other once for each band.
  void MatmulRows(ConstFloatRows x, std::span<const RowsMatmul> parts, int64_t bands = 1) {
    std::vector<RowsMatmul> placed;
    if (std::any_of(parts.begin(), parts.end(),
                    [](const auto& part) { return OrderOf(part) != nullptr; })) {
      x = GatherOrdered(x, parts, &placed);
      parts = placed;
    }
    int64_t tiles = 0;
    InputForms forms;
    std::vector<std::shared_ptr<const PackedMatrix>> matrices;
    bool is_partial = false;  // what the next one begins with is learnt of whole ones
    for (const RowsMatmul& part : parts.first(parts.size() / static_cast<size_t>(bands))) {
      KVASIR_CHECK(part.job.weights->inputs() == x.cols);
      matrices.push_back(SharedPacked(*part.job.weights));
      tiles += TilesOf(part);
      const PackedMatrix& matrix = *matrices.back();
      is_partial |= PanelsOf(part) < matrix.panels();
      weight_bytes_read_ += part.job.weights->bytes() * static_cast<uint64_t>(PanelsOf(part)) /
                            static_cast<uint64_t>(matrix.panels());
      KVASIR_CHECK(
          part.job.out.cols == matrix.outputs() ||
          (part.job.out.cols < matrix.outputs() && part.job.out.cols % kPanelOutputs == 0));
      forms.Add(part.job.weights->format());
    }
    inputs_.Make(x, forms);
    if (x.rows <= kLookaheadRows && !is_partial) lookahead_.Begin(matrices);
    pool_.ForPieces(static_cast<size_t>(tiles * bands), {}, [&](int thread, const auto& take) {
      size_t begin = 0;
      size_t end = 0;
      while (take(&begin, &end)) {
        int64_t offset = 0;  // tiles of earlier parts
        for (const RowsMatmul& part : parts) {
          const int64_t first = std::max<int64_t>(static_cast<int64_t>(begin) - offset, 0);
          const int64_t last = std::min<int64_t>(static_cast<int64_t>(end) - offset, TilesOf(part));
          if (first < last) MatmulTiles(x, part, first, last, thread);
          offset += TilesOf(part);
        }
      }
    });
  }

  // The rows that parts want, in the orders that they want; `placed` are the parts that read those.
  ConstFloatRows GatherOrdered(ConstFloatRows x, std::span<const RowsMatmul> parts,
                               std::vector<RowsMatmul>* placed) {
    std::vector<OrderedPart> ordered;
    for (const RowsMatmul& part : parts) {
      ordered.push_back({OrderOf(part), part.row_begin, part.rows});
    }
    const ConstFloatRows gathered = ordered_.Gather(x, ordered);
    placed->assign(parts.begin(), parts.end());
    for (size_t i = 0; i < ordered.size(); ++i) (*placed)[i].row_begin = ordered[i].row_begin;
    return gathered;
  }

  void MatmulTiles(ConstFloatRows x, const RowsMatmul& part, int64_t first, int64_t last,
                   int thread) {
    const PackedMatrix& matrix = Packed(*part.job.weights);
    MatmulArgs args = {.x = x.row(part.row_begin),
                       .x_stride = x.stride,
                       .rows = part.rows,
                       .weights = &matrix,
                       .panel_begin = first * kPanelTile,
                       .panel_end = std::min(last * kPanelTile, PanelsOf(part)),
                       .bias = part.job.bias,
                       .out = part.job.out.data,
                       .out_stride = part.job.out.stride,
                       .fetch_into = prefetching_.weights,
                       .may_stream = prefetching_.streams_weights};
    inputs_.Give(thread, part.row_begin, &args);
    const float scale = TraitsOf(*part.job.weights).scale;
    if (scale != 1) args.bias = nullptr;
    kernels_.matmul[static_cast<size_t>(matrix.format())](args);
    if (scale == 1) return;
    const int64_t begin = args.panel_begin * kPanelOutputs;
    const int64_t count = std::min(args.panel_end * kPanelOutputs, part.job.out.cols) - begin;
    for (int64_t row = 0; row < part.rows; ++row) {
      float* const out = part.job.out.row(row) + begin;
      kernels_.scale(out, scale, count);
      if (part.job.bias != nullptr) kernels_.add(out, part.job.bias + begin, count);
    }
  }

  const KernelTable& kernels_;
  const Prefetching prefetching_;
  WeightLookahead lookahead_;
  ThreadPool pool_;
  AlignedArena arena_;  // of weights
  CpuAttention attention_;
  CpuExperts experts_;
  std::vector<std::weak_ptr<const std::vector<int32_t>>> orders_;
  OrderedInputs ordered_;
  MatmulInputs inputs_;  // of the current Matmul call
  uint64_t weight_bytes_read_ = 0;
};

}  // namespace

Result<std::unique_ptr<Backend>> MakeCpuBackend(const CpuBackendOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return {ErrorCode::kInvalidArgument, "threads must be 0 (one per physical core) to " +
                                             std::to_string(kMaxThreads) + ", not " +
                                             std::to_string(options.threads)};
  }
  const int threads = options.threads == 0 ? AvailableCores() : options.threads;
  if (options.kernels != nullptr) {
    return std::unique_ptr<Backend>(
        std::make_unique<CpuBackend>(*options.kernels, threads, options));
  }
  const std::vector<Isa> supported = SupportedIsas();
  const Isa isa = options.isa.value_or(supported.back());
  if (std::find(supported.begin(), supported.end(), isa) == supported.end()) {
    return {ErrorCode::kUnsupported,
            "this CPU cannot run the " + std::string(IsaName(isa)) + " kernels"};
  }
  return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(KernelsFor(isa), threads, options));
}

}  // namespace kvasir
