#include "kvasir/cli/trace.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "kvasir/formats/safetensors.h"
#include "kvasir/formats/safetensors_writer.h"
#include "kvasir/kv/kv_batch.h"
#include "kvasir/kv/kv_pool.h"

namespace kvasir {
namespace {

constexpr size_t kPoolBytes = size_t{1} << 30;
// Keeps the arithmetic of generated tensors within 64 bits.
constexpr int64_t kMaxGenerated = int64_t{1} << 32;

// A trace tensor in float32.
struct Tensor {
  std::vector<int64_t> shape;
  std::vector<float> data;
};

Error Malformed(const std::string& what) { return {ErrorCode::kCorrupt, "trace: " + what}; }

Result<const Json*> Member(const Json& object, std::string_view key) {
  const Json* member = object.Find(key);
  if (member == nullptr) return Malformed("field '" + std::string(key) + "' is missing");
  return member;
}

Result<std::vector<std::string>> Strings(const Json& array) {
  std::vector<std::string> out;
  if (!array.is_array()) return Malformed("a list of ids is expected");
  for (const Json& item : array.as_array()) {
    if (!item.is_string()) return Malformed("an id must be a string");
    out.push_back(item.as_string());
  }
  return out;
}

Result<Tensor> ReadTensor(const Json& json) {
  Tensor tensor;
  KVASIR_TRY(const Json* shape, Member(json, "shape"));
  if (!shape->is_array()) return Malformed("'shape' must be a list");
  int64_t count = 1;
  for (const Json& extent : shape->as_array()) {
    if (!extent.is_int() || extent.as_int() < 0 || extent.as_int() > (1 << 24)) {
      return Malformed("a shape must hold small integers");
    }
    tensor.shape.push_back(extent.as_int());
    count *= extent.as_int();
    if (count > (int64_t{1} << 28)) return Malformed("a tensor is too large");
  }
  if (json.Find("gen") != nullptr) {
    KVASIR_TRY(const int64_t salt, json.GetInt("salt"));
    KVASIR_TRY(const int64_t position, json.GetInt("pos"));
    if (tensor.shape.size() != 3) return Malformed("a generated tensor has 3 dimensions");
    if (salt < 0 || salt > kMaxGenerated || position < 0 || position > kMaxGenerated) {
      return Malformed("'salt' and 'pos' must be small and not negative");
    }
    for (int64_t i = 0; i < tensor.shape[0]; ++i) {
      for (int64_t h = 0; h < tensor.shape[1]; ++h) {
        for (int64_t d = 0; d < tensor.shape[2]; ++d) {
          const int64_t value = ((position + i) * 131 + h * 31 + d * 17 + salt) % 257 - 128;
          tensor.data.push_back(static_cast<float>(value) / 64);
        }
      }
    }
    return tensor;
  }
  KVASIR_TRY(const Json* data, Member(json, "data"));
  if (!data->is_array() || static_cast<int64_t>(data->as_array().size()) != count) {
    return Malformed("'data' does not fit 'shape'");
  }
  for (const Json& value : data->as_array()) {
    if (!value.is_number()) return Malformed("'data' must hold numbers");
    tensor.data.push_back(static_cast<float>(value.as_double()));
  }
  return tensor;
}

class Replayer {
 public:
  Replayer(Backend& backend, std::string scratch_folder)
      : backend_(backend),
        scratch_folder_(std::move(scratch_folder)),
        pool_(KvPoolOptions{.budget_bytes = kPoolBytes}) {}

  Result<TraceResult> Run(const Json& trace) {
    KVASIR_TRY(const Json* spec, Member(trace, "spec"));
    KVASIR_TRY_OK(ReadSpec(*spec));
    if (!not_yet_.empty()) return TraceResult{TraceResult::Outcome::kNotYet, not_yet_, 0};
    if (const Json* tolerance = trace.Find("tolerance"); tolerance != nullptr) {
      KVASIR_TRY(tolerance_, tolerance->GetDoubleOr("attention", tolerance_));
    }
    KVASIR_TRY(const Json* ops, Member(trace, "ops"));
    if (!ops->is_array()) return Malformed("'ops' must be a list");
    int64_t index = 0;
    for (const Json& op : ops->as_array()) {
      KVASIR_TRY_OK(RunOp(op));
      if (!not_yet_.empty()) return TraceResult{TraceResult::Outcome::kNotYet, not_yet_, index};
      if (!failure_.empty()) {
        KVASIR_TRY(const std::string name, op.GetString("op"));
        return TraceResult{TraceResult::Outcome::kFails,
                           "operation " + std::to_string(index) + " (" + name + "): " + failure_,
                           index};
      }
      ++index;
    }
    return TraceResult{TraceResult::Outcome::kHolds, "", index};
  }

 private:
  void Fail(const std::string& message) {
    if (failure_.empty()) failure_ = message;
  }

  // --- what the trace is about

  Status ReadSpec(const Json& spec) {
    KVASIR_TRY(const int64_t kv_heads, spec.GetInt("kv_heads"));
    KVASIR_TRY(const int64_t query_heads, spec.GetInt("q_heads"));
    KVASIR_TRY(const int64_t head_dim, spec.GetInt("head_dim"));
    KVASIR_TRY(const int64_t value_dim, spec.GetIntOr("value_dim", head_dim));
    KVASIR_TRY(const double scale, spec.GetDouble("scale"));
    KVASIR_TRY(const int64_t layers, spec.GetIntOr("layers", 1));
    for (const int64_t size : {kv_heads, query_heads, head_dim, value_dim}) {
      if (size < 1 || size > 4096) return Malformed("'spec' has an absurd size");
    }
    if (query_heads % kv_heads != 0) return Malformed("'q_heads' is no multiple of 'kv_heads'");
    query_heads_ = static_cast<int>(query_heads);
    scale_ = static_cast<float>(scale);
    KvLayerSpec layer;
    layer.layout = {static_cast<int>(kv_heads),
                    static_cast<int>(head_dim),
                    static_cast<int>(value_dim),
                    {},
                    {}};
    KVASIR_TRY_OK(ReadCodec(spec, "keys", &layer.layout.key_codec));
    KVASIR_TRY_OK(ReadCodec(spec, "values", &layer.layout.value_codec));
    KVASIR_TRY_OK(ReadRetention(spec, &layer.retention));
    if (layers != 1 && not_yet_.empty()) not_yet_ = "several layers in one trace";
    spec_ = std::make_shared<const KvCacheSpec>(KvCacheSpec::Uniform(1, layer));
    return spec_->Validate();
  }

  Status ReadCodec(const Json& spec, const char* key, KvCodec* codec) {
    KVASIR_TRY(const Json* json, Member(spec, key));
    KVASIR_TRY(const std::string name, json->GetString("codec"));
    const auto known = KvCodec::FromName(name);
    if (known.ok()) {
      *codec = *known;
    } else if (not_yet_.empty()) {
      KVASIR_TRY(const int64_t bits, json->GetIntOr("bits", 0));
      not_yet_ = "codec " + name + (bits > 0 ? ", " + std::to_string(bits) + " bits" : "");
    }
    return {};
  }

  Status ReadRetention(const Json& spec, RetentionSpec* retention) {
    KVASIR_TRY(const Json* json, Member(spec, "retention"));
    KVASIR_TRY(const std::string kind, json->GetString("kind"));
    KVASIR_TRY(const int64_t size, json->GetIntOr("size", 0));
    KVASIR_TRY(const int64_t keep, json->GetIntOr("keep", 0));
    if (kind == "all") {
      *retention = RetentionSpec::All();
    } else if (kind == "window" && keep == 0) {
      *retention = RetentionSpec::Window(size);
    } else if (kind == "chunk") {
      *retention = RetentionSpec::Chunk(size);
    } else if (not_yet_.empty()) {
      not_yet_ = "retention " + kind + (keep > 0 ? " with kept head tokens" : "");
    }
    return {};
  }

  const KvLayout& layout() const { return spec_->layers[0].layout; }
  int64_t KeyCols() const { return int64_t{layout().kv_heads} * layout().key_dim; }
  int64_t ValueCols() const { return int64_t{layout().kv_heads} * layout().value_dim; }

  // --- sequences, kept in batches as the trace arranges them

  SequenceId IdOf(const std::string& name) {
    return ids_.try_emplace(name, static_cast<SequenceId>(ids_.size() + 1)).first->second;
  }
  Result<KvBatch*> BatchOf(const std::string& name) {
    for (KvBatch& batch : batches_) {
      if (batch.Find(IdOf(name)) != nullptr) return &batch;
    }
    return Malformed("there is no sequence '" + name + "'");
  }
  Result<KvSequence*> SequenceOf(const std::string& name) {
    KVASIR_TRY(KvBatch* const batch, BatchOf(name));
    return batch->Find(IdOf(name));
  }
  Status AddAlone(const std::string& name, KvSequence sequence) {
    KvBatch batch;
    KVASIR_TRY_OK(batch.Add(IdOf(name), std::move(sequence)));
    batches_.push_back(std::move(batch));
    return {};
  }
  void DropEmptyBatches() {
    std::erase_if(batches_, [](const KvBatch& batch) { return batch.empty(); });
  }

  // --- operations

  Status RunOp(const Json& op) {
    KVASIR_TRY(const std::string name, op.GetString("op"));
    KVASIR_TRY(const Json* expect, Member(op, "expect"));
    if (name == "new") {
      KVASIR_TRY_OK(New(op));
    } else if (name == "append") {
      KVASIR_TRY_OK(Append(op, *expect));
    } else if (name == "trim") {
      KVASIR_TRY_OK(Trim(op, *expect));
    } else if (name == "fork" || name == "extract") {
      KVASIR_TRY_OK(Fork(op));
    } else if (name == "filter") {
      KVASIR_TRY_OK(Filter(op));
    } else if (name == "merge" || name == "extend") {
      KVASIR_TRY_OK(MergeOrExtend(op, name == "extend"));
    } else if (name == "save_load") {
      KVASIR_TRY_OK(SaveLoad(op));
    } else if (name != "check") {
      not_yet_ = "operation " + name;
      return {};
    }
    return CompareAll(*expect);
  }

  Status New(const Json& op) {
    KVASIR_TRY(const Json* ids, Member(op, "ids"));
    KVASIR_TRY(const auto names, Strings(*ids));
    KvBatch batch;
    for (const std::string& name : names) {
      KVASIR_TRY(KvSequence sequence, KvSequence::Create(&pool_, spec_));
      KVASIR_TRY_OK(batch.Add(IdOf(name), std::move(sequence)));
    }
    batches_.push_back(std::move(batch));
    return {};
  }

  Status Append(const Json& op, const Json& expect) {
    KVASIR_TRY(const Json* seqs, Member(op, "seqs"));
    if (!seqs->is_object()) return Malformed("'seqs' must be an object");
    for (const auto& [name, rows] : seqs->as_object()) {
      KVASIR_TRY(KvSequence* const sequence, SequenceOf(name));
      KVASIR_TRY(const Json* keys_json, Member(rows, "keys"));
      KVASIR_TRY(const Json* values_json, Member(rows, "values"));
      KVASIR_TRY(const Tensor keys, ReadTensor(*keys_json));
      KVASIR_TRY(const Tensor values, ReadTensor(*values_json));
      KVASIR_TRY(const int64_t count, rows.GetInt("n"));
      const auto elements = static_cast<int64_t>(keys.data.size());
      if (count < 0 || count > elements || elements != count * KeyCols() ||
          static_cast<int64_t>(values.data.size()) != count * ValueCols()) {
        return Malformed("keys and values of '" + name + "' do not fit n");
      }
      KVASIR_TRY_OK(sequence->Reserve(count));
      const Position first = sequence->position();
      const KvRun run = {sequence->Blocks(0), first, 0, count};
      backend_.EncodeKv(layout(), std::span(&run, 1),
                        ConstFloatRows(keys.data.data(), count, KeyCols(), KeyCols()),
                        ConstFloatRows(values.data.data(), count, ValueCols(), ValueCols()));
      if (const Json* queries = rows.Find("queries"); queries != nullptr) {
        KVASIR_TRY_OK(CompareAttention(*queries, expect, name, *sequence, run));
      }
      sequence->Advance(count);
    }
    return {};
  }

  Status CompareAttention(const Json& queries_json, const Json& expect, const std::string& name,
                          const KvSequence& sequence, const KvRun& run) {
    KVASIR_TRY(const Tensor queries, ReadTensor(queries_json));
    const int64_t query_cols = int64_t{query_heads_} * layout().key_dim;
    const int64_t out_cols = int64_t{query_heads_} * layout().value_dim;
    if (static_cast<int64_t>(queries.data.size()) != run.rows * query_cols) {
      return Malformed("queries of '" + name + "' do not fit n");
    }
    std::vector<VisibleRows> visible;
    for (int64_t i = 0; i < run.rows; ++i) {
      visible.push_back(sequence.Visible(0, run.first_row + i));
    }
    std::vector<float> out(static_cast<size_t>(run.rows * out_cols));
    AttendArgs args;
    args.layout = layout();
    args.query_heads = query_heads_;
    args.scale = scale_;
    args.queries = ConstFloatRows(queries.data.data(), run.rows, query_cols, query_cols);
    args.runs = std::span(&run, 1);
    args.visible = visible;
    args.out = {out.data(), run.rows, out_cols, out_cols};
    backend_.Attend(args);

    const Json* attention = expect.Find("attention");
    const Json* entry = attention == nullptr ? nullptr : attention->Find(name);
    if (entry == nullptr) return {};
    KVASIR_TRY(const Json* wanted_json, Member(*entry, "out"));
    KVASIR_TRY(const Tensor wanted, ReadTensor(*wanted_json));
    std::vector<int64_t> rows;  // which of the n queries `out` holds
    if (const Json* at = entry->Find("at"); at != nullptr && at->is_array()) {
      for (const Json& index : at->as_array()) {
        if (!index.is_int() || index.as_int() < 0 || index.as_int() >= run.rows) {
          return Malformed("'at' of '" + name + "' is out of range");
        }
        rows.push_back(index.as_int());
      }
    } else {
      for (int64_t i = 0; i < run.rows; ++i) rows.push_back(i);
    }
    if (static_cast<int64_t>(wanted.data.size()) != static_cast<int64_t>(rows.size()) * out_cols) {
      return Malformed("attention of '" + name + "' does not fit n");
    }
    for (size_t i = 0; i < wanted.data.size(); ++i) {
      const int64_t row = rows[i / static_cast<size_t>(out_cols)];
      const float actual =
          out[static_cast<size_t>(row * out_cols) + i % static_cast<size_t>(out_cols)];
      // Negated so that NaN fails.
      if (!(std::fabs(actual - wanted.data[i]) <= tolerance_)) {
        Fail("sequence '" + name + "': attention of query " + std::to_string(row) + " is " +
             std::to_string(actual) + ", expected " + std::to_string(wanted.data[i]));
        return {};
      }
    }
    return {};
  }

  Status Trim(const Json& op, const Json& expect) {
    KVASIR_TRY(const Json* seqs, Member(op, "seqs"));
    if (!seqs->is_object()) return Malformed("'seqs' must be an object");
    std::vector<std::string> refused;
    if (const Json* list = expect.Find("refused"); list != nullptr) {
      KVASIR_TRY(refused, Strings(*list));
    }
    for (const auto& [name, count] : seqs->as_object()) {
      if (!count.is_int()) return Malformed("a trim count must be an integer");
      KVASIR_TRY(KvBatch* const batch, BatchOf(name));
      if (std::find(refused.begin(), refused.end(), name) != refused.end()) {
        // The recorded engine had lost rows here. Ours may still hold them: tried on a fork, whose
        // rows must then be those of the earlier state; the trace goes on with what it expects.
        KVASIR_TRY_OK(TrimFork(name, *batch->Find(IdOf(name)), count.as_int()));
        continue;
      }
      std::vector<int64_t> counts;
      for (const SequenceId id : batch->ids())
        counts.push_back(id == IdOf(name) ? count.as_int() : 0);
      KVASIR_TRY(const auto reports, batch->TrimEach(counts));
      for (const TrimReport& report : reports) {
        if (report.id == IdOf(name)) KVASIR_TRY_OK(CompareTrim(name, report, expect));
      }
    }
    return {};
  }

  Status CompareTrim(const std::string& name, const TrimReport& report, const Json& expect) {
    if (!report.status.ok()) {
      Fail("sequence '" + name + "' refused: " + report.status.error().message);
      return {};
    }
    const Json* trimmed = expect.Find("trimmed");
    if (trimmed == nullptr) return {};
    KVASIR_TRY(const int64_t wanted, trimmed->GetInt(name));
    if (report.trimmed != wanted) {
      Fail("sequence '" + name + "': " + std::to_string(report.trimmed) + " trimmed, expected " +
           std::to_string(wanted));
    }
    return {};
  }

  Status TrimFork(const std::string& name, const KvSequence& sequence, int64_t count) {
    KvSequence fork = sequence.Fork();
    if (!fork.Trim(count).ok()) return {};
    const VisibleRows visible = fork.Visible(0, fork.position());
    for (int64_t row = visible.begin; row < fork.position(); ++row) {
      if (fork.ReadKeys(0, row) != sequence.ReadKeys(0, row)) {
        Fail("sequence '" + name + "': row " + std::to_string(row) + " changed in a trim");
      }
    }
    return {};
  }

  Status Fork(const Json& op) {
    const Json* source = op.Find("from") != nullptr ? op.Find("from") : op.Find("id");
    if (source == nullptr || !source->is_string()) return Malformed("fork needs 'from'");
    KVASIR_TRY(const std::string to, op.GetString("to"));
    KVASIR_TRY(KvSequence* const from, SequenceOf(source->as_string()));
    return AddAlone(to, from->Fork());
  }

  Status Filter(const Json& op) {
    KVASIR_TRY(const Json* keep_json, Member(op, "keep"));
    KVASIR_TRY(const auto keep, Strings(*keep_json));
    std::vector<std::string> dropped;
    if (const Json* json = op.Find("dropped"); json != nullptr) {
      KVASIR_TRY(dropped, Strings(*json));
    }
    if (keep.empty() && dropped.empty()) return Malformed("filter names no sequence");
    const std::string& any = keep.empty() ? dropped[0] : keep[0];
    KVASIR_TRY(KvBatch* const batch, BatchOf(any));
    std::vector<SequenceId> ids;
    for (const std::string& name : keep) ids.push_back(IdOf(name));
    for (const std::string& name : dropped) last_expected_.erase(name);
    KVASIR_TRY_OK(batch->Filter(ids));
    DropEmptyBatches();
    return {};
  }

  // Brings the sequences into one batch, in the trace's order.
  Status MergeOrExtend(const Json& op, bool is_extend) {
    KVASIR_TRY(const Json* ids_json, Member(op, "ids"));
    KVASIR_TRY(const auto names, Strings(*ids_json));
    if (names.empty()) return Malformed("merge and extend name no sequence");
    if (is_extend) {
      KVASIR_TRY(const Json* with_json, Member(op, "with"));
      KVASIR_TRY(const auto with, Strings(*with_json));
      if (with.empty()) return Malformed("extend names no sequence to add");
      KVASIR_TRY(KvBatch* const into, BatchOf(names[0]));
      KVASIR_TRY(KvBatch* const from, BatchOf(with[0]));
      if (into != from) KVASIR_TRY_OK(into->Extend(std::move(*from)));
      DropEmptyBatches();
      return {};
    }
    std::vector<KvBatch> parts;
    for (const std::string& name : names) {
      KVASIR_TRY(KvBatch* const batch, BatchOf(name));
      KVASIR_TRY(KvSequence sequence, batch->Extract(IdOf(name)));
      KvBatch part;
      KVASIR_TRY_OK(part.Add(IdOf(name), std::move(sequence)));
      parts.push_back(std::move(part));
    }
    KVASIR_TRY(KvBatch merged, KvBatch::Merge(parts));
    DropEmptyBatches();
    batches_.push_back(std::move(merged));
    return {};
  }

  // Every row that is held goes through a file, to the bit, into a fresh sequence.
  Status SaveLoad(const Json& op) {
    KVASIR_TRY(const Json* ids_json, Member(op, "ids"));
    KVASIR_TRY(const auto names, Strings(*ids_json));
    for (const std::string& name : names) {
      KVASIR_TRY(KvSequence* const sequence, SequenceOf(name));
      KVASIR_TRY(KvSequence loaded, ThroughFile(*sequence));
      *sequence = std::move(loaded);
    }
    return {};
  }

  Result<KvSequence> ThroughFile(const KvSequence& sequence) {
    const Position first = sequence.Visible(0, sequence.position()).begin;
    const Position end = sequence.position();
    const KvRows rows = sequence.ReadRows(0, first, end);
    // Several programs may replay side by side.
    const std::string path =
        scratch_folder_ + "/kvasir-replay-" + std::to_string(getpid()) + ".safetensors";
    const std::pair<const char*, const std::vector<float>*> parts[] = {{"keys", &rows.keys},
                                                                       {"values", &rows.values}};
    std::vector<TensorDeclaration> declarations;
    for (const auto& [name, data] : parts) {
      declarations.push_back({name, DType::kF32, {static_cast<int64_t>(data->size())}});
    }
    KVASIR_TRY(SafetensorsWriter writer, SafetensorsWriter::Create(path, declarations));
    for (const auto& [name, data] : parts) {
      KVASIR_TRY_OK(writer.Append(name, std::as_bytes(std::span(*data))));
    }
    KVASIR_TRY_OK(writer.Finish());
    KVASIR_TRY(const SafetensorsFile file, SafetensorsFile::Open(path));
    std::remove(path.c_str());
    KvRows read;
    for (auto& [key, out] : {std::pair("keys", &read.keys), std::pair("values", &read.values)}) {
      const TensorView* tensor = file.Find(key);
      if (tensor == nullptr) return Malformed("the saved file lost a tensor");
      out->resize(static_cast<size_t>(tensor->elements()));
      ReadFloats(*tensor, 0, tensor->elements(), out->data());
    }
    KVASIR_TRY(KvSequence loaded, KvSequence::Create(&pool_, spec_));
    KVASIR_TRY_OK(loaded.Reserve(end));
    if (first < end) loaded.WriteRows(0, first, read);
    loaded.Advance(end);
    return loaded;
  }

  // --- comparison

  Status CompareAll(const Json& expect) {
    const Json* seqs = expect.Find("seqs");
    if (seqs != nullptr && seqs->is_object()) {
      for (const auto& [name, state] : seqs->as_object()) last_expected_[name] = state;
    }
    // A live sequence that the operation does not list must be as it was.
    for (const auto& [name, state] : last_expected_) {
      KVASIR_TRY(const KvSequence* const sequence, SequenceOf(name));
      KVASIR_TRY_OK(CompareState(name, state, *sequence));
      if (!failure_.empty()) return {};
    }
    return {};
  }

  Status CompareState(const std::string& name, const Json& state, const KvSequence& sequence) {
    KVASIR_TRY(const int64_t position, state.GetInt("position"));
    KVASIR_TRY(const int64_t rows, state.GetInt("rows"));
    if (sequence.position() != position) {
      Fail("sequence '" + name + "': position " + std::to_string(sequence.position()) +
           ", expected " + std::to_string(position));
      return {};
    }
    const Position begin = sequence.Visible(0, position).begin;
    if (position - begin != rows) {
      Fail("sequence '" + name + "': " + std::to_string(position - begin) + " rows, expected " +
           std::to_string(rows));
      return {};
    }
    KVASIR_TRY_OK(ComparePositions(name, state, begin, position));
    const KvRows held = sequence.ReadRows(0, begin, position);
    KVASIR_TRY_OK(CompareRows(name, "keys", state, held.keys, KeyCols()));
    return CompareRows(name, "values", state, held.values, ValueCols());
  }

  Status ComparePositions(const std::string& name, const Json& state, Position begin,
                          Position end) {
    const Json* ranges = state.Find("row_positions");
    if (ranges == nullptr) return {};
    const Json wanted = begin == end ? Json(Json::Array())
                                     : Json(Json::Array{Json(Json::Array{Json(begin), Json(end)})});
    if (!(*ranges == wanted)) {
      Fail("sequence '" + name + "': rows are at " + wanted.Dump() + ", expected " +
           ranges->Dump());
    }
    return {};
  }

  Status CompareRows(const std::string& name, const char* key, const Json& state,
                     const std::vector<float>& held, int64_t cols) {
    if (const Json* all = state.Find(key); all != nullptr) {
      KVASIR_TRY(const Tensor wanted, ReadTensor(*all));
      // Bits, so that -0 and NaN count; memcmp must not see the null pointers of empty vectors.
      if (wanted.data.size() != held.size() ||
          (!held.empty() &&
           std::memcmp(wanted.data.data(), held.data(), held.size() * sizeof(float)) != 0)) {
        Fail("sequence '" + name + "': " + key + " differ");
      }
      return {};
    }
    const Json* sample = state.Find("sample");
    if (sample == nullptr) return {};
    KVASIR_TRY(const Json* rows, Member(*sample, "rows"));
    KVASIR_TRY(const Json* data, Member(*sample, key));
    KVASIR_TRY(const Tensor wanted, ReadTensor(*data));
    if (!rows->is_array() ||
        wanted.data.size() != rows->as_array().size() * static_cast<size_t>(cols)) {
      return Malformed("'sample' does not fit its rows");
    }
    for (size_t i = 0; i < wanted.data.size(); ++i) {
      const Json& row = rows->as_array()[i / static_cast<size_t>(cols)];
      const auto held_rows = static_cast<int64_t>(held.size()) / cols;
      if (!row.is_int() || row.as_int() < 0 || row.as_int() >= held_rows) {
        return Malformed("'sample' names a row that is not there");
      }
      const size_t at = static_cast<size_t>(row.as_int() * cols) + i % static_cast<size_t>(cols);
      if (held[at] != wanted.data[i]) Fail("sequence '" + name + "': sampled " + key + " differ");
    }
    return CompareSum(name, key, state, held);
  }

  Status CompareSum(const std::string& name, const char* key, const Json& state,
                    const std::vector<float>& held) {
    const Json* sums = state.Find("sum");
    const Json* wanted = sums == nullptr ? nullptr : sums->Find(key);
    if (wanted == nullptr || !wanted->is_number()) return {};
    double sum = 0;  // exact: all elements are multiples of 1/64
    for (const float value : held) sum += value;
    if (sum != wanted->as_double()) {
      Fail("sequence '" + name + "': " + key + " sum to " + std::to_string(sum) + ", expected " +
           std::to_string(wanted->as_double()));
    }
    return {};
  }

  Backend& backend_;
  const std::string scratch_folder_;
  KvPool pool_;
  std::shared_ptr<const KvCacheSpec> spec_;
  int query_heads_ = 1;
  float scale_ = 1;
  double tolerance_ = 2e-5;

  std::vector<KvBatch> batches_;
  std::map<std::string, SequenceId> ids_;
  std::map<std::string, Json> last_expected_;
  std::string failure_;
  std::string not_yet_;
};

}  // namespace

Result<TraceResult> ReplayTrace(const Json& trace, Backend& backend,
                                const std::string& scratch_folder) {
  KVASIR_TRY(const std::string format, trace.GetString("format"));
  if (format != "kvasir-trace/1") {
    return {ErrorCode::kUnsupported, "trace format '" + format + "' is not kvasir-trace/1"};
  }
  return Replayer(backend, scratch_folder).Run(trace);
}

}  // namespace kvasir
