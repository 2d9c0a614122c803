#include "kvasir/convert/gguf_delta_nets.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "kvasir/base/scalar_math.h"
#include "kvasir/convert/remade_tensor.h"

namespace kvasir {
namespace {

constexpr std::string_view kDeltaNet = ".linear_attn.";

// The given rows, in that order.
SourceTensor RowsOf(const SourceTensor& from, std::vector<int64_t> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  return Remade(from, {count, from.shape.back()},
                [stored = from.rows.read_row, rows = std::move(rows)](int64_t row, float* out) {
                  stored(rows[static_cast<size_t>(row)], out);
                });
}

// Every row's numbers in the given order.
SourceTensor ColumnsOf(const SourceTensor& from, std::vector<int64_t> columns) {
  return Remade(
      from, from.shape,
      [stored = from.rows.read_row, columns = std::move(columns)](int64_t row, float* out) {
        std::vector<float> whole(columns.size());
        stored(row, whole.data());
        for (size_t i = 0; i < columns.size(); ++i) {
          out[i] = whole[static_cast<size_t>(columns[i])];
        }
      });
}

class DeltaNetExport {
 public:
  // Of a net whose projections are joined heads stay where they are.
  DeltaNetExport(const DeltaNetConfig& net, bool is_joined) : net_(net), is_joined_(is_joined) {}

  void Add(SourceTensor tensor, std::vector<SourceTensor>* result) const {
    const size_t at = tensor.name.find(kDeltaNet);
    if (tensor.name.ends_with(".mlp.shared_expert_gate.weight")) {
      result->push_back(Remade(tensor, {tensor.shape.back()}, tensor.rows.read_row));
    } else if (at == std::string::npos) {
      result->push_back(std::move(tensor));
    } else {
      const std::string prefix = tensor.name.substr(0, at + kDeltaNet.size());
      const std::string part = tensor.name.substr(prefix.size());
      AddOfNet(prefix, part, std::move(tensor), result);
    }
  }

 private:
  void AddOfNet(const std::string& prefix, std::string_view part, SourceTensor tensor,
                std::vector<SourceTensor>* result) const {
    const int64_t values = net_.value_dim;
    const auto add = [&](SourceTensor made, const char* name) {
      made.name = prefix + name;
      result->push_back(std::move(made));
    };
    if (part == "in_proj_qkvz.weight") {
      add(RowsOf(tensor, JoinedRows(false)), "in_proj_qkv.weight");
      add(RowsOf(tensor, JoinedRows(true)), "in_proj_z.weight");
    } else if (part == "in_proj_qkv.weight") {
      add(RowsOf(tensor, MixedRows()), "in_proj_qkv.weight");
    } else if (part == "in_proj_z.weight") {
      add(RowsOf(tensor, OfValueHeads(values)), "in_proj_z.weight");
    } else if (part == "in_proj_a.weight" || part == "in_proj_b.weight") {
      result->push_back(RowsOf(tensor, OfValueHeads(1)));
    } else if (part == "conv1d.weight") {
      add(RowsOf(ConvolutionTaps(tensor), MixedRows()), "conv1d.weight");
    } else if (part == "dt_bias") {
      add(ColumnsOf(tensor, OfValueHeads(1)), "dt_bias");
    } else if (part == "A_log") {
      add(Rates(ColumnsOf(tensor, OfValueHeads(1))), "A");
    } else if (part == "out_proj.weight") {
      add(ColumnsOf(tensor, OfValueHeads(values)), "out_proj.weight");
    } else {
      result->push_back(std::move(tensor));
    }
  }

  // Of value heads of `size` rows each, which one of the checkpoint's comes where.
  std::vector<int64_t> OfValueHeads(int64_t size) const {
    const int64_t ratio = net_.value_heads / net_.key_heads;
    std::vector<int64_t> rows;
    for (int64_t head = 0; head < net_.value_heads; ++head) {
      const int64_t stored =
          is_joined_ ? head : head % net_.key_heads * ratio + head / net_.key_heads;
      for (int64_t i = 0; i < size; ++i) rows.push_back(stored * size + i);
    }
    return rows;
  }

  // Queries and keys, then values.
  std::vector<int64_t> MixedRows() const {
    const int64_t keys = int64_t{2} * net_.key_heads * net_.key_dim;
    std::vector<int64_t> rows;
    for (int64_t row = 0; row < keys; ++row) rows.push_back(row);
    for (const int64_t row : OfValueHeads(net_.value_dim)) rows.push_back(keys + row);
    return rows;
  }

  // Per key head: its query, its key, then values and gates of its value heads.
  std::vector<int64_t> JoinedRows(bool of_gates) const {
    const int64_t keys = net_.key_dim;
    const int64_t values = int64_t{net_.value_heads} / net_.key_heads * net_.value_dim;
    std::vector<int64_t> rows;
    const auto add = [&](int64_t begin, int64_t count) {
      for (int64_t head = 0; head < net_.key_heads; ++head) {
        const int64_t first = head * (2 * keys + 2 * values) + begin;
        for (int64_t row = 0; row < count; ++row) rows.push_back(first + row);
      }
    };
    if (of_gates) {
      add(2 * keys + values, values);
    } else {
      add(0, keys);
      add(keys, keys);
      add(2 * keys, values);
    }
    return rows;
  }

  static SourceTensor Rates(const SourceTensor& logarithms) {
    return Remade(logarithms, logarithms.shape,
                  [stored = logarithms.rows.read_row, count = logarithms.shape.back()](int64_t row,
                                                                                       float* out) {
                    stored(row, out);
                    std::transform(out, out + count, out, [](float x) { return -scalar::Exp(x); });
                  });
  }

  const DeltaNetConfig net_;
  const bool is_joined_;
};

}  // namespace

std::vector<SourceTensor> GgufDeltaNets(std::vector<SourceTensor> tensors,
                                        const ModelConfig& config) {
  const bool is_joined = std::ranges::any_of(tensors, [](const SourceTensor& tensor) {
    return tensor.name.ends_with(".linear_attn.in_proj_ba.weight");
  });
  const DeltaNetExport net(config.delta_net, is_joined);
  std::vector<SourceTensor> result;
  for (SourceTensor& tensor : tensors) net.Add(std::move(tensor), &result);
  return result;
}

}  // namespace kvasir
