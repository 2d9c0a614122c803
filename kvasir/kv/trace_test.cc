// Replays recorded caches of mlx-lm (testdata/traces): what is stored, what is visible, what is
// refused, what is evicted, and attention computed from it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/kv/kv_batch.h"
#include "kvasir/kv/kv_test_util.h"
#include "kvasir/tensor/packed_codec.h"
#include "kvasir/tensor/packed_codes.h"

namespace kvasir {
namespace {

using namespace kv_testing;

// The traces give attention to 2e-5 (their README); theirs is float32, ours here is double.
constexpr double kAttentionTolerance = 2e-5;

const std::string kTraceFolder = std::string(KVASIR_SOURCE_DIR) + "/testdata/traces";

int64_t IntOf(const Json& json, const char* key, int64_t absent = 0) {
  const Json* value = json.Find(key);
  return value != nullptr ? value->as_int() : absent;
}

std::string TextOf(const Json& json, const char* key) { return json.Find(key)->as_string(); }

std::vector<std::string> NamesOf(const Json& json) {
  std::vector<std::string> names;
  for (const Json& name : json.as_array()) names.push_back(name.as_string());
  return names;
}

// A tensor of the trace format, flat.
std::vector<float> Tensor(const Json& json) {
  std::vector<float> data;
  if (json.Find("gen") == nullptr) {
    for (const Json& x : json.Find("data")->as_array()) {
      data.push_back(static_cast<float>(x.as_double()));
    }
    return data;
  }
  const auto& shape = json.Find("shape")->as_array();
  for (int64_t i = 0; i < shape[0].as_int(); ++i) {
    for (int64_t h = 0; h < shape[1].as_int(); ++h) {
      for (int64_t d = 0; d < shape[2].as_int(); ++d) {
        const int64_t x = (IntOf(json, "pos") + i) * 131 + h * 31 + d * 17 + IntOf(json, "salt");
        data.push_back(static_cast<float>(x % 257 - 128) / 64);
      }
    }
  }
  return data;
}

// Part `index` of `parts` equal ones: one layer of a tensor with a leading layer dimension.
std::vector<float> Part(const std::vector<float>& all, int64_t index, int64_t parts) {
  const auto size = static_cast<int64_t>(all.size()) / parts;
  return {all.begin() + index * size, all.begin() + (index + 1) * size};
}

KvCodec CodecOf(const Json& json) {
  if (TextOf(json, "codec") == "f32") return F32();
  return KvCodec::Affine(static_cast<int>(IntOf(json, "bits")),
                         static_cast<int>(IntOf(json, "group")), KvCodec::Scales::kF32);
}

RetentionSpec RetentionOf(const Json& json) {
  const std::string kind = TextOf(json, "kind");
  if (kind != "budget") {
    return Must(RetentionSpec::FromName(
        kind == "all"
            ? kind
            : kind + ":" + std::to_string(IntOf(json, "size")) +
                  (IntOf(json, "keep") == 0 ? ""
                                            : ",keep=" + std::to_string(IntOf(json, "keep")))));
  }
  RetentionSpec budget;
  budget.kind = RetentionSpec::Kind::kBudget;
  budget.size = IntOf(json, "tokens");
  budget.recent = IntOf(json, "keep_recent");
  budget.score = TextOf(json, "score") == "knorm-high" ? RowScore::kKnormHigh : RowScore::kKnorm;
  return budget;
}

class Replay {
 public:
  explicit Replay(const Json& trace) : trace_(trace), pool_(Budget(kAmpleBytes)) {
    const Json& spec = *trace.Find("spec");
    KvLayerSpec layer;
    layer.layout = {
        .kv_heads = static_cast<int>(IntOf(spec, "kv_heads")),
        .key_dim = static_cast<int>(IntOf(spec, "head_dim")),
        .value_dim = static_cast<int>(IntOf(spec, "value_dim", IntOf(spec, "head_dim"))),
        .key_codec = CodecOf(*spec.Find("keys")),
        .value_codec = CodecOf(*spec.Find("values"))};
    layer.retention = RetentionOf(*spec.Find("retention"));
    layer.layout.key_norms = layer.retention.kind == RetentionSpec::Kind::kBudget;
    layers_ = IntOf(spec, "layers", 1);
    spec_ =
        std::make_shared<const KvCacheSpec>(KvCacheSpec::Uniform(static_cast<int>(layers_), layer));
    hysteresis_ = IntOf(*spec.Find("retention"), "hysteresis");
    q_heads_ = IntOf(spec, "q_heads");
    scale_ = spec.Find("scale")->as_double();
  }

  void Run() {
    int index = 0;
    for (const Json& op : trace_.Find("ops")->as_array()) {
      SCOPED_TRACE("op " + std::to_string(index++) + " " + TextOf(op, "op"));
      Do(op);
      if (testing::Test::HasFailure()) return;
      CheckSequences(*op.Find("expect"));
      if (testing::Test::HasFailure()) return;
    }
  }

 private:
  void Do(const Json& op) {
    const std::string name = TextOf(op, "op");
    if (name == "new") {
      for (const std::string& id : NamesOf(*op.Find("ids"))) {
        Add(id, Must(KvSequence::Create(&pool_, spec_)));
      }
    } else if (name == "append") {
      for (const auto& [id, run] : op.Find("seqs")->as_object()) Append(id, run, op);
    } else if (name == "trim") {
      for (const auto& [id, count] : op.Find("seqs")->as_object()) {
        Trim(id, count.as_int(), *op.Find("expect"));
      }
    } else if (name == "fork" || name == "extract") {
      const Json* from = op.Find("from");
      Add(TextOf(op, "to"), Find(from != nullptr ? from->as_string() : TextOf(op, "id")).Fork());
    } else if (name == "filter") {
      for (const std::string& id : NamesOf(*op.Find("dropped"))) {
        const KvSequence ended = Must(batch_.Extract(ids_.at(id)));
        ids_.erase(id);
      }
    } else if (name == "save_load") {
      // A snapshot takes the place of the file: what it holds is what a file would.
      for (const std::string& id : NamesOf(*op.Find("ids"))) {
        const KvSnapshot saved = Find(id).Snapshot();
        { const KvSequence ended = Must(batch_.Extract(ids_.at(id))); }
        Add(id, Must(KvSequence::Restore(&pool_, saved)));
      }
    } else if (name == "compact") {
      const bool automatic = TextOf(op, "mode") == "auto";
      const bool compacted = Must(Find(TextOf(op, "id")).Compact(automatic ? hysteresis_ : 0));
      ASSERT_EQ(compacted, op.Find("expect")->Find("compacted")->as_bool());
    } else {
      // merge and extend change no content; one batch holds every sequence here from the start.
      ASSERT_TRUE(name == "merge" || name == "extend" || name == "check") << name;
    }
  }

  void Add(const std::string& id, KvSequence sequence) {
    ids_[id] = next_id_;
    MustOk(batch_.Add(next_id_++, std::move(sequence)));
  }

  KvSequence& Find(const std::string& id) { return *batch_.Find(ids_.at(id)); }

  void Append(const std::string& id, const Json& run, const Json& op) {
    KvSequence& sequence = Find(id);
    const Position start = sequence.position();
    const int64_t count = IntOf(run, "n");
    MustOk(sequence.Reserve(count));
    const std::vector<float> keys = Tensor(*run.Find("keys"));
    const std::vector<float> values = Tensor(*run.Find("values"));
    for (int layer = 0; layer < layers_; ++layer) {
      sequence.WriteRows(layer, sequence.RowOf(layer, start),
                         {Part(keys, layer, layers_), Part(values, layer, layers_)});
    }
    // Queries attend before Advance, while every row that the first of them sees is still held.
    const Json* attention = op.Find("expect")->Find("attention");
    if (attention != nullptr && attention->Find(id) != nullptr && run.Find("queries") != nullptr) {
      CheckAttention(sequence, start, count, Tensor(*run.Find("queries")), *attention->Find(id));
    }
    sequence.Advance(count);
  }

  void CheckAttention(const KvSequence& sequence, Position start, int64_t count,
                      const std::vector<float>& queries, const Json& expect) {
    std::vector<int64_t> indices(static_cast<size_t>(count));
    std::iota(indices.begin(), indices.end(), 0);
    if (const Json* at = expect.Find("at")) {
      indices.clear();
      for (const Json& index : at->as_array()) indices.push_back(index.as_int());
    }
    const std::vector<float> out = Tensor(*expect.Find("out"));
    size_t next = 0;
    for (int layer = 0; layer < layers_; ++layer) {
      const std::vector<float> queries_of = Part(queries, layer, layers_);
      for (const int64_t index : indices) {
        const auto rows = RowsFrom(sequence, layer, start + index, 1);
        for (int64_t head = 0; head < q_heads_; ++head) {
          const size_t query = static_cast<size_t>((index * q_heads_ + head) * layout().key_dim);
          for (const double x : Attend(sequence, layer, rows, head, &queries_of[query])) {
            ASSERT_NEAR(x, out.at(next++), kAttentionTolerance) << "query " << index;
          }
        }
      }
    }
    ASSERT_EQ(next, out.size());
  }

  // Rows that the query at `position` sees, `own` of them from its own row on, in order of
  // position.
  static std::vector<int64_t> RowsFrom(const KvSequence& sequence, int layer, Position position,
                                       int64_t own) {
    const VisibleRows visible = sequence.Visible(layer, position);
    std::vector<int64_t> rows;
    for (int64_t row = 0; row < visible.end - 1 + own; ++row) {
      if (row < visible.head_end || row >= visible.begin) rows.push_back(row);
    }
    const std::vector<Position> positions = sequence.RowPositions(layer);
    const auto position_of = [&](int64_t row) {
      const auto known = static_cast<int64_t>(positions.size());
      return row < known ? positions[static_cast<size_t>(row)] : sequence.position() + row - known;
    };
    std::sort(rows.begin(), rows.end(),
              [&](int64_t a, int64_t b) { return position_of(a) < position_of(b); });
    return rows;
  }

  static KvRows Read(const KvSequence& sequence, int layer, const std::vector<int64_t>& rows) {
    KvRows all;
    for (const int64_t row : rows) {
      const KvRows one = sequence.ReadRows(layer, row, row + 1);
      all.keys.insert(all.keys.end(), one.keys.begin(), one.keys.end());
      all.values.insert(all.values.end(), one.values.begin(), one.values.end());
    }
    return all;
  }

  std::vector<double> Attend(const KvSequence& sequence, int layer,
                             const std::vector<int64_t>& visible, int64_t q_head,
                             const float* query) const {
    const KvRows rows = Read(sequence, layer, visible);
    const int64_t kv_head = q_head / (q_heads_ / layout().kv_heads);
    std::vector<double> scores;
    for (size_t row = 0; row < visible.size(); ++row) {
      const float* key =
          &rows.keys[(row * layout().kv_heads + static_cast<size_t>(kv_head)) * layout().key_dim];
      scores.push_back(scale_ * std::inner_product(key, key + layout().key_dim, query, 0.0));
    }
    const double max = *std::max_element(scores.begin(), scores.end());
    std::vector<double> out(static_cast<size_t>(layout().value_dim));
    double sum = 0;
    for (size_t row = 0; row < visible.size(); ++row) {
      const double weight = std::exp(scores[row] - max);
      sum += weight;
      for (size_t d = 0; d < out.size(); ++d) {
        out[d] += weight * rows.values[(row * layout().kv_heads + static_cast<size_t>(kv_head)) *
                                           layout().value_dim +
                                       d];
      }
    }
    for (double& x : out) x /= sum;
    return out;
  }

  void Trim(const std::string& id, int64_t count, const Json& expect) {
    KvSequence before = Find(id).Fork();
    const auto trimmed = Find(id).Trim(count);
    const Json* refused = expect.Find("refused");
    const bool may_refuse = refused != nullptr && [&] {
      const auto names = NamesOf(*refused);
      return std::find(names.begin(), names.end(), id) != names.end();
    }();
    if (!may_refuse) {
      ASSERT_TRUE(trimmed.ok()) << trimmed.error().message;
      ASSERT_EQ(*trimmed, IntOf(*expect.Find("trimmed"), id.c_str()));
    } else if (trimmed.ok()) {
      // Some refusals of mlx-lm are not needed here: the rows are still held. The trace goes on
      // from the state before.
      { const KvSequence ended = Must(batch_.Extract(ids_.at(id))); }
      Add(id, std::move(before));
    }
  }

  void CheckSequences(const Json& expect) {
    const Json* sequences = expect.Find("seqs");
    if (sequences == nullptr) return;
    for (const auto& [id, state] : sequences->as_object()) {
      SCOPED_TRACE("sequence " + id);
      CheckState(Find(id), state);
    }
  }

  void CheckState(const KvSequence& sequence, const Json& state) {
    ASSERT_EQ(sequence.position(), IntOf(state, "position"));
    for (int layer = 0; layer < layers_; ++layer) {
      const auto rows = RowsFrom(sequence, layer, sequence.position(), 0);
      ASSERT_EQ(static_cast<int64_t>(rows.size()), IntOf(state, "rows"));
      CheckPositions(sequence, layer, rows, *state.Find("row_positions"));
      const KvRows content = Read(sequence, layer, rows);
      if (const Json* sample = state.Find("sample")) {
        CheckSample(content, *sample, *state.Find("sum"));
      } else {
        ASSERT_EQ(content.keys, Part(Tensor(*state.Find("keys")), layer, layers_));
        ASSERT_EQ(content.values, Part(Tensor(*state.Find("values")), layer, layers_));
      }
      if (const Json* packed = state.Find("packed")) CheckPacked(sequence, layer, rows, *packed);
    }
  }

  static void CheckPositions(const KvSequence& sequence, int layer,
                             const std::vector<int64_t>& rows, const Json& ranges) {
    const std::vector<Position> positions = sequence.RowPositions(layer);
    std::vector<Position> actual;
    for (const int64_t row : rows) actual.push_back(positions[static_cast<size_t>(row)]);
    std::vector<Position> expected;
    for (const Json& range : ranges.as_array()) {
      const Position end = range.as_array()[1].as_int();
      for (Position p = range.as_array()[0].as_int(); p < end; ++p) expected.push_back(p);
    }
    ASSERT_EQ(actual, expected);
  }

  // Words, scales and biases as MLX stores them, bit for bit.
  void CheckPacked(const KvSequence& sequence, int layer, const std::vector<int64_t>& rows,
                   const Json& packed) const {
    for (const bool keys : {true, false}) {
      const Json* expect = packed.Find(keys ? "keys" : "values");
      if (expect == nullptr || expect->is_null()) continue;
      const KvCodec codec = keys ? layout().key_codec : layout().value_codec;
      const int64_t dim = keys ? layout().key_dim : layout().value_dim;
      const KvBlockLayout block = layout().BlockAt(0);
      const size_t head_bytes = keys ? block.KeyHeadBytes() : block.ValueHeadBytes();
      std::vector<uint32_t> words;
      std::vector<float> scales;
      std::vector<float> biases;
      for (const int64_t row : rows) {
        const int slot = static_cast<int>(row % kBlockTokens);
        const std::byte* plane =
            sequence.Blocks(layer).block_of(row) + (keys ? 0 : block.KeyPlaneBytes());
        for (int head = 0; head < layout().kv_heads; ++head, plane += head_bytes) {
          std::vector<uint8_t> codes;
          for (int64_t d = 0; d < dim; ++d) {
            const auto load = keys ? LoadKeyCode : LoadValueCode;
            codes.push_back(static_cast<uint8_t>(load(plane, codec.bits, d, slot)));
          }
          words.resize(words.size() + static_cast<size_t>(RowWords(dim, codec.bits)));
          PackRow(codes, codec.bits, words.data() + words.size() - RowWords(dim, codec.bits));
          for (int64_t group = 0; group < dim / codec.group; ++group) {
            const AffineGroup stored = LoadAffineGroup(codec, plane, dim, group, slot);
            scales.push_back(stored.scale);
            biases.push_back(stored.bias);
          }
        }
      }
      std::vector<uint32_t> expected;
      for (const Json& word : expect->Find("words")->Find("data")->as_array()) {
        expected.push_back(static_cast<uint32_t>(word.as_int()));
      }
      ASSERT_EQ(words, expected);
      ASSERT_EQ(scales, Tensor(*expect->Find("scales")));
      ASSERT_EQ(biases, Tensor(*expect->Find("biases")));
    }
  }

  void CheckSample(const KvRows& rows, const Json& sample, const Json& sum) {
    const auto pick = [&](const std::vector<float>& from, int64_t row_size) {
      std::vector<float> picked;
      for (const Json& row : sample.Find("rows")->as_array()) {
        const auto begin = from.begin() + row.as_int() * row_size;
        picked.insert(picked.end(), begin, begin + row_size);
      }
      return picked;
    };
    ASSERT_EQ(pick(rows.keys, layout().kv_heads * layout().key_dim), Tensor(*sample.Find("keys")));
    ASSERT_EQ(pick(rows.values, layout().kv_heads * layout().value_dim),
              Tensor(*sample.Find("values")));
    // Multiples of 1/64: the sum is exact.
    ASSERT_EQ(std::accumulate(rows.keys.begin(), rows.keys.end(), 0.0),
              sum.Find("keys")->as_double());
    ASSERT_EQ(std::accumulate(rows.values.begin(), rows.values.end(), 0.0),
              sum.Find("values")->as_double());
  }

  const KvLayout& layout() const { return spec_->layers[0].layout; }

  const Json& trace_;
  KvPool pool_;
  std::shared_ptr<const KvCacheSpec> spec_;
  int64_t layers_ = 1;
  int64_t hysteresis_ = 0;
  int64_t q_heads_ = 0;
  double scale_ = 0;
  KvBatch batch_;
  std::map<std::string, SequenceId> ids_;
  SequenceId next_id_ = 1;
};

TEST(TraceTest, BehavesAsRecorded) {
  int replayed = 0;
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(kTraceFolder)) {
    if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  for (const std::string& path : paths) {
    SCOPED_TRACE(path);
    const Json trace = Must(Json::ParseFile(path));
    Replay(trace).Run();
    if (HasFailure()) return;
    ++replayed;
  }
  EXPECT_EQ(replayed, 46);
}

}  // namespace
}  // namespace kvasir
