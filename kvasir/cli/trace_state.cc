#include "kvasir/cli/trace_state.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "kvasir/cli/trace_tensor.h"
#include "kvasir/tensor/packed_codec.h"
#include "kvasir/tensor/packed_codes.h"

namespace kvasir {
namespace {

// Bits, so that -0 and NaN count; memcmp must not see the null pointers of empty vectors.
template <typename T>
bool SameBits(std::span<const T> a, std::span<const T> b) {
  return a.size() == b.size() &&
         (a.empty() || std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
}

// One layer of a sequence beside its expected state.
class LayerComparison {
 public:
  LayerComparison(const KvSequence& sequence, int layer)
      : sequence_(sequence), layer_(layer), rows_(TraceRows(sequence, layer)) {
    for (const int64_t row : rows_) {
      const KvRows one = sequence.ReadRows(layer, row, row + 1);
      held_.keys.insert(held_.keys.end(), one.keys.begin(), one.keys.end());
      held_.values.insert(held_.values.end(), one.values.begin(), one.values.end());
    }
  }

  Result<std::string> Compare(const Json& state) const {
    KVASIR_TRY(const int64_t rows, state.GetInt("rows"));
    if (static_cast<int64_t>(rows_.size()) != rows) {
      return std::to_string(rows_.size()) + " rows, expected " + std::to_string(rows);
    }
    if (const Json* ranges = state.Find("row_positions"); ranges != nullptr) {
      const std::string difference = ComparePositions(*ranges);
      if (!difference.empty()) return difference;
    }
    const KvLayout& layout = sequence_.spec().layers[static_cast<size_t>(layer_)].layout;
    for (const bool keys : {true, false}) {
      const int64_t cols = int64_t{layout.kv_heads} * (keys ? layout.key_dim : layout.value_dim);
      KVASIR_TRY(const std::string difference, CompareRows(keys, state, cols));
      if (!difference.empty()) return difference;
      const Json* packed = state.Find("packed");
      const Json* expected = packed == nullptr ? nullptr : packed->Find(keys ? "keys" : "values");
      if (expected == nullptr || expected->is_null()) continue;
      KVASIR_TRY(const std::string words, ComparePacked(keys, *expected));
      if (!words.empty()) return words;
    }
    return std::string();
  }

  double Sum(bool keys) const {
    double sum = 0;
    for (const float value : keys ? held_.keys : held_.values) sum += value;
    return sum;
  }

 private:
  std::string ComparePositions(const Json& wanted) const {
    const std::vector<Position> positions = sequence_.RowPositions(layer_);
    Json::Array ranges;
    Position begin = 0;
    for (size_t i = 0; i < rows_.size(); ++i) {
      const Position position = positions[static_cast<size_t>(rows_[i])];
      const bool starts = i == 0 || positions[static_cast<size_t>(rows_[i - 1])] != position - 1;
      if (starts) begin = position;
      if (!starts) ranges.pop_back();
      ranges.push_back(Json::Array{Json(begin), Json(position + 1)});
    }
    const Json held{ranges};
    if (wanted == held) return "";
    return "rows are at " + held.Dump() + ", expected " + wanted.Dump();
  }

  Result<std::string> CompareRows(bool keys, const Json& state, int64_t cols) const {
    const char* const name = keys ? "keys" : "values";
    const std::vector<float>& held = keys ? held_.keys : held_.values;
    if (const Json* all = state.Find(name); all != nullptr) {
      KVASIR_TRY(const TraceTensor<float> wanted, ReadFloatTensor(*all));
      const auto layers = static_cast<int64_t>(sequence_.spec().layers.size());
      if (wanted.data.size() != held.size() * static_cast<size_t>(layers)) {
        return MalformedTrace(std::string("'") + name + "' does not fit its rows");
      }
      const bool same = SameBits<float>(wanted.Part(layer_, layers), held);
      return same ? "" : std::string(name) + " differ";
    }
    const Json* sample = state.Find("sample");
    if (sample == nullptr) return std::string();
    KVASIR_TRY(const Json* rows, TraceMember(*sample, "rows"));
    KVASIR_TRY(const Json* data, TraceMember(*sample, name));
    KVASIR_TRY(const TraceTensor<float> wanted, ReadFloatTensor(*data));
    const auto row_floats = static_cast<size_t>(cols);
    const auto layers = static_cast<int64_t>(sequence_.spec().layers.size());
    if (!rows->is_array() ||
        wanted.data.size() != rows->as_array().size() * row_floats * static_cast<size_t>(layers)) {
      return MalformedTrace("'sample' does not fit its rows");
    }
    const std::span<const float> here = wanted.Part(layer_, layers);
    for (size_t i = 0; i < here.size(); ++i) {
      const Json& row = rows->as_array()[i / row_floats];
      if (!row.is_int() || row.as_int() < 0 ||
          row.as_int() >= static_cast<int64_t>(held.size()) / cols) {
        return MalformedTrace("'sample' names a row that is not there");
      }
      const size_t at = static_cast<size_t>(row.as_int()) * row_floats + i % row_floats;
      if (held[at] != here[i]) return std::string("sampled ") + name + " differ";
    }
    return std::string();
  }

  // Words, scales and biases as MLX stores them.
  Result<std::string> ComparePacked(bool keys, const Json& expected) const {
    const KvLayerSpec& spec = sequence_.spec().layers[static_cast<size_t>(layer_)];
    const KvCodec codec = keys ? spec.layout.key_codec : spec.layout.value_codec;
    if (codec.kind != KvCodec::Kind::kAffine) {
      return MalformedTrace("'packed' is expected of rows that are not affine");
    }
    const int64_t dim = keys ? spec.layout.key_dim : spec.layout.value_dim;
    std::vector<uint32_t> words;
    std::vector<float> scales;
    std::vector<float> biases;
    for (const int64_t row : rows_) {
      const KvBlockLayout block = spec.layout.BlockAt(row / kBlockTokens);
      const int slot = static_cast<int>(row % kBlockTokens);
      const std::byte* plane =
          sequence_.Blocks(layer_).block_of(row) + (keys ? 0 : block.KeyPlaneBytes());
      for (int head = 0; head < block.kv_heads; ++head) {
        std::vector<uint8_t> codes;
        for (int64_t d = 0; d < dim; ++d) {
          codes.push_back(static_cast<uint8_t>(keys ? LoadKeyCode(plane, codec.bits, d, slot)
                                                    : LoadValueCode(plane, codec.bits, d, slot)));
        }
        const auto row_words = static_cast<size_t>(RowWords(dim, codec.bits));
        words.resize(words.size() + row_words);
        PackRow(codes, codec.bits, words.data() + words.size() - row_words);
        for (int64_t group = 0; group < dim / codec.group; ++group) {
          const AffineGroup stored = LoadAffineGroup(codec, plane, dim, group, slot);
          scales.push_back(stored.scale);
          biases.push_back(stored.bias);
        }
        plane += keys ? block.KeyHeadBytes() : block.ValueHeadBytes();
      }
    }
    return ComparePackedTensors(keys, expected, words, scales, biases);
  }

  Result<std::string> ComparePackedTensors(bool keys, const Json& expected,
                                           std::span<const uint32_t> words,
                                           std::span<const float> scales,
                                           std::span<const float> biases) const {
    KVASIR_TRY(const Json* words_json, TraceMember(expected, "words"));
    KVASIR_TRY(const Json* scales_json, TraceMember(expected, "scales"));
    KVASIR_TRY(const Json* biases_json, TraceMember(expected, "biases"));
    KVASIR_TRY(const auto wanted_words, ReadWordTensor(*words_json));
    KVASIR_TRY(const auto wanted_scales, ReadFloatTensor(*scales_json));
    KVASIR_TRY(const auto wanted_biases, ReadFloatTensor(*biases_json));
    const auto layers = static_cast<int64_t>(sequence_.spec().layers.size());
    const std::string of = keys ? " of keys differ" : " of values differ";
    if (!SameBits(words, wanted_words.Part(layer_, layers))) return "words" + of;
    if (!SameBits(scales, wanted_scales.Part(layer_, layers))) return "scales" + of;
    if (!SameBits(biases, wanted_biases.Part(layer_, layers))) return "biases" + of;
    return std::string();
  }

  const KvSequence& sequence_;
  const int layer_;
  const std::vector<int64_t> rows_;
  KvRows held_;
};

std::string CompareSum(const char* name, const Json& state, double sum) {
  const Json* sums = state.Find("sum");
  const Json* wanted = sums == nullptr ? nullptr : sums->Find(name);
  if (wanted == nullptr || !wanted->is_number() || sum == wanted->as_double()) return "";
  return std::string(name) + " sum to " + std::to_string(sum) + ", expected " +
         std::to_string(wanted->as_double());
}

}  // namespace

std::vector<int64_t> TraceRows(const KvSequence& sequence, int layer) {
  const VisibleRows visible = sequence.Visible(layer, sequence.position());
  std::vector<int64_t> rows;
  for (int64_t row = 0; row < visible.head_end; ++row) rows.push_back(row);
  for (int64_t row = visible.begin; row + 1 < visible.end; ++row) rows.push_back(row);
  const std::vector<Position> positions = sequence.RowPositions(layer);
  std::sort(rows.begin(), rows.end(), [&](int64_t a, int64_t b) {
    return positions[static_cast<size_t>(a)] < positions[static_cast<size_t>(b)];
  });
  return rows;
}

Result<std::string> CompareTraceState(const KvSequence& sequence, const Json& state) {
  KVASIR_TRY(const int64_t position, state.GetInt("position"));
  if (sequence.position() != position) {
    return "position " + std::to_string(sequence.position()) + ", expected " +
           std::to_string(position);
  }
  double key_sum = 0;  // exact where there is one: all elements are multiples of 1/64
  double value_sum = 0;
  for (size_t layer = 0; layer < sequence.spec().layers.size(); ++layer) {
    const LayerComparison here(sequence, static_cast<int>(layer));
    KVASIR_TRY(const std::string difference, here.Compare(state));
    if (!difference.empty()) return "layer " + std::to_string(layer) + ": " + difference;
    key_sum += here.Sum(true);
    value_sum += here.Sum(false);
  }
  for (const auto& [name, sum] : {std::pair{"keys", key_sum}, std::pair{"values", value_sum}}) {
    const std::string difference = CompareSum(name, state, sum);
    if (!difference.empty()) return difference;
  }
  return std::string();
}

}  // namespace kvasir
