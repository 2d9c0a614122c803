// Speed of the matmul kernels on one thread, per instruction set, weight format and rows.
// Deliberately measures the kernels alone: threads and cutting of panels are the backend's.
//
// GB/s counts the weights once per call; GOP/s counts two operations per weight and row.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kvasir/kernels/kernels.h"

namespace kvasir {
namespace {

struct Shape {
  int64_t outputs;
  int64_t inputs;
};

// Values only have to be finite and not all the same.
std::vector<float> Ramp(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(static_cast<int>(i * 7919 % 2001) - 1000) / 1000;
  }
  return values;
}

// Codes of the format's range and scales around 0.01.
CodedRow RampCodes(int64_t inputs, WeightFormat format) {
  const bool is_e4m3 = format == WeightFormat::kMxfp8 || format == WeightFormat::kFp8;
  CodedRow row;
  row.codes.resize(static_cast<size_t>(inputs));
  for (size_t i = 0; i < row.codes.size(); ++i) {
    row.codes[i] = static_cast<uint8_t>(i * 7919 % (is_e4m3 ? 127 : 1u << CodeBits(format)));
  }
  const size_t groups = row.codes.size() / kQuantGroup;
  row.scales.assign(groups, FloatToF16(0.01f));
  row.biases.assign(groups, FloatToF16(0.08f));
  // Of E8M0 not a power of two that makes products denormal, which some CPUs are slow with.
  const bool is_power = is_e4m3 || format == WeightFormat::kMxfp4;
  row.sub_scales.assign(2 * groups, is_power ? 120 : 7);
  row.sub_mins.assign(2 * groups, 3);
  row.wide_scales.assign(groups, 0.01f);
  return row;
}

void RunMatmul(benchmark::State& state, Isa isa, WeightFormat format, Shape shape) {
  const KernelTable& table = KernelsFor(isa);
  const int64_t rows = state.range(0);
  Result<PackedMatrix> weights = PackedMatrix::Allocate(shape.outputs, shape.inputs, format);
  if (!weights.ok()) return state.SkipWithError("out of memory");
  const std::vector<float> row = Ramp(shape.inputs);
  const CodedRow coded = RampCodes(shape.inputs, format);
  for (int64_t n = 0; n < shape.outputs; ++n) {
    if (IsCodedOnly(format)) {
      weights->SetCodedRow(n, coded);
    } else {
      weights->SetRow(n, row.data());
    }
  }
  const std::vector<float> x = Ramp(rows * shape.inputs);
  std::vector<float> out(static_cast<size_t>(rows * shape.outputs));
  std::vector<int8_t> codes(static_cast<size_t>(rows * shape.inputs));
  std::vector<float> scales(static_cast<size_t>(rows * shape.inputs / kQuantGroup));
  std::vector<int32_t> sums(scales.size());
  table.quantize_rows(x.data(), shape.inputs, rows, shape.inputs, codes.data(), scales.data(),
                      sums.data());
  std::vector<int32_t> half_sums(sums.size());
  for (size_t i = 0; i < codes.size(); ++i) {
    if (i % kQuantGroup < kQuantGroup / 2) half_sums[i / kQuantGroup] += codes[i];
  }
  std::vector<std::byte> rounded(
      static_cast<size_t>(rows * KernelTable::RoundedBytes(shape.inputs)));
  table.round_rows(x.data(), shape.inputs, rows, shape.inputs, rounded.data());
  MatmulArgs args;
  args.x = x.data();
  args.x_rounded = rounded.data();
  args.x_stride = shape.inputs;
  args.x_codes = codes.data();
  args.x_scales = scales.data();
  args.x_sums = sums.data();
  args.x_half_sums = half_sums.data();
  args.rows = rows;
  args.weights = &*weights;
  args.panel_end = weights->panels();
  args.out = out.data();
  args.out_stride = shape.outputs;
  args.fetch_into = PreferredPrefetching().weights;
  args.may_stream = PreferredPrefetching().streams_weights;
  for (auto _ : state) {
    table.matmul[static_cast<int>(format)](args);
    benchmark::ClobberMemory();
  }
  const double calls = static_cast<double>(state.iterations());
  state.counters["GB/s"] = benchmark::Counter(static_cast<double>(weights->bytes()) * calls / 1e9,
                                              benchmark::Counter::kIsRate);
  const double operations = 2.0 * static_cast<double>(rows * shape.outputs * shape.inputs);
  state.counters["GOP/s"] =
      benchmark::Counter(operations * calls / 1e9, benchmark::Counter::kIsRate);
}

void RunQuantizeRows(benchmark::State& state, Isa isa) {
  const KernelTable& table = KernelsFor(isa);
  const int64_t inputs = 4096;
  const std::vector<float> x = Ramp(inputs);
  std::vector<int8_t> codes(inputs);
  std::vector<float> scales(inputs / kQuantGroup);
  std::vector<int32_t> sums(inputs / kQuantGroup);
  for (auto _ : state) {
    table.quantize_rows(x.data(), inputs, 1, inputs, codes.data(), scales.data(), sums.data());
    benchmark::ClobberMemory();
  }
  state.SetBytesProcessed(static_cast<int64_t>(state.iterations()) * inputs * 4);
}

void RegisterAll() {
  // Larger than the caches, so that one row measures memory.
  constexpr Shape kLarge = {14336, 4096};
  for (Isa isa : SupportedIsas()) {
    if (isa == Isa::kScalar) continue;
    const std::string isa_name(IsaName(isa));
    for (const WeightFormat format : AllWeightFormats()) {
      const std::string name = "matmul/" + isa_name + "/" + std::string(WeightFormatName(format));
      benchmark::RegisterBenchmark(name.c_str(), RunMatmul, isa, format, kLarge)
          ->ArgName("rows")
          ->Arg(1)
          ->Arg(2)
          ->Arg(4)
          ->Arg(8)
          ->Arg(16)
          ->Arg(64)
          ->Arg(512)
          ->Unit(benchmark::kMillisecond);
    }
    // As large, of short rows: tiles follow each other four times as often.
    for (const WeightFormat format : AllWeightFormats()) {
      const std::string name = "short/" + isa_name + "/" + std::string(WeightFormatName(format));
      benchmark::RegisterBenchmark(name.c_str(), RunMatmul, isa, format, Shape{57344, 1024})
          ->ArgName("rows")
          ->Arg(1)
          ->Arg(4)
          ->Unit(benchmark::kMillisecond);
    }
    // A whole prefill chunk over a layer that fits the caches: arithmetic alone.
    for (const WeightFormat format : AllWeightFormats()) {
      const std::string name = "layer/" + isa_name + "/" + std::string(WeightFormatName(format));
      benchmark::RegisterBenchmark(name.c_str(), RunMatmul, isa, format, Shape{3072, 1024})
          ->ArgName("rows")
          ->Arg(512)
          ->Unit(benchmark::kMillisecond);
    }
    benchmark::RegisterBenchmark(("quantize_rows/" + isa_name).c_str(), RunQuantizeRows, isa);
  }
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  kvasir::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
