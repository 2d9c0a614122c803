#include "kvasir/cli/trace_attention.h"

#include <cmath>

#include "kvasir/cli/trace_tensor.h"

namespace kvasir {

Result<std::string> TraceAttention::Compare(const TraceQueries& asked) const {
  KVASIR_TRY(const TraceTensor<float> queries, ReadFloatTensor(asked.queries));
  const int64_t count = asked.runs[0].rows;
  if (static_cast<int64_t>(queries.data.size()) != spec_.layers * count * QueryCols()) {
    return MalformedTrace("queries of '" + asked.name + "' do not fit n");
  }
  const Json* attention = asked.expect.Find("attention");
  const Json* entry = attention == nullptr ? nullptr : attention->Find(asked.name);
  if (entry == nullptr) return std::string();
  KVASIR_TRY(const Json* wanted_json, TraceMember(*entry, "out"));
  KVASIR_TRY(const TraceTensor<float> wanted, ReadFloatTensor(*wanted_json));
  KVASIR_TRY(const std::vector<int64_t> rows, RowsAt(*entry, asked.name, count));
  if (static_cast<int64_t>(wanted.data.size()) !=
      spec_.layers * static_cast<int64_t>(rows.size()) * OutCols()) {
    return MalformedTrace("attention of '" + asked.name + "' does not fit n");
  }
  const auto cols = static_cast<size_t>(OutCols());
  for (int layer = 0; layer < spec_.layers; ++layer) {
    const std::vector<float> out =
        Attend(asked.sequence, layer, asked.runs[static_cast<size_t>(layer)],
               queries.Part(layer, spec_.layers));
    const std::span<const float> layer_wanted = wanted.Part(layer, spec_.layers);
    for (size_t i = 0; i < layer_wanted.size(); ++i) {
      const auto row = static_cast<size_t>(rows[i / cols]);
      const float actual = out[row * cols + i % cols];
      // Negated so that NaN fails.
      if (!(std::fabs(actual - layer_wanted[i]) <= tolerance_)) {
        return "layer " + std::to_string(layer) + ": attention of query " + std::to_string(row) +
               " is " + std::to_string(actual) + ", expected " + std::to_string(layer_wanted[i]);
      }
    }
  }
  return std::string();
}

Result<std::vector<int64_t>> TraceAttention::RowsAt(const Json& entry, const std::string& name,
                                                    int64_t n) {
  std::vector<int64_t> rows;
  const Json* at = entry.Find("at");
  if (at == nullptr || !at->is_array()) {
    for (int64_t i = 0; i < n; ++i) rows.push_back(i);
    return rows;
  }
  for (const Json& index : at->as_array()) {
    if (!index.is_int() || index.as_int() < 0 || index.as_int() >= n) {
      return MalformedTrace("'at' of '" + name + "' is out of range");
    }
    rows.push_back(index.as_int());
  }
  return rows;
}

std::vector<float> TraceAttention::Attend(const KvSequence& sequence, int layer, const KvRun& run,
                                          std::span<const float> queries) const {
  std::vector<VisibleRows> visible;
  for (int64_t i = 0; i < run.rows; ++i) {
    visible.push_back(sequence.Visible(layer, sequence.position() + i));
  }
  std::vector<float> out(static_cast<size_t>(run.rows * OutCols()));
  AttendArgs args;
  args.layout = layout();
  args.query_heads = spec_.query_heads;
  args.scale = spec_.scale;
  args.queries = ConstFloatRows(queries.data(), run.rows, QueryCols(), QueryCols());
  args.runs = std::span(&run, 1);
  args.visible = visible;
  args.out = {out.data(), run.rows, OutCols(), OutCols()};
  backend_.Attend(args);
  return out;
}

}  // namespace kvasir
