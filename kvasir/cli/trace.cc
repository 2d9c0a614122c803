#include "kvasir/cli/trace.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "kvasir/cli/trace_attention.h"
#include "kvasir/cli/trace_sequences.h"
#include "kvasir/cli/trace_spec.h"
#include "kvasir/cli/trace_state.h"
#include "kvasir/cli/trace_tensor.h"
#include "kvasir/kv/kv_batch.h"
#include "kvasir/kv/kv_pool.h"
#include "kvasir/kv/snapshot_file.h"

namespace kvasir {
namespace {

constexpr size_t kPoolBytes = size_t{1} << 30;

class Replayer {
 public:
  Replayer(Backend& backend, std::string scratch_folder)
      : backend_(backend),
        scratch_folder_(std::move(scratch_folder)),
        pool_(KvPoolOptions{.budget_bytes = kPoolBytes}),
        sequences_(&pool_) {}

  Result<TraceResult> Run(const Json& trace) {
    KVASIR_TRY(const Json* spec, TraceMember(trace, "spec"));
    KVASIR_TRY(spec_, TraceSpec::Read(*spec));
    if (!spec_.not_yet.empty()) {
      return TraceResult{TraceResult::Outcome::kNotYet, spec_.not_yet, 0};
    }
    if (const Json* tolerance = trace.Find("tolerance"); tolerance != nullptr) {
      KVASIR_TRY(tolerance_, tolerance->GetDoubleOr("attention", tolerance_));
    }
    KVASIR_TRY(const Json* ops, TraceMember(trace, "ops"));
    if (!ops->is_array()) return MalformedTrace("'ops' must be a list");
    int64_t index = 0;
    for (const Json& op : ops->as_array()) {
      if (const Status ran = RunOp(op); !ran.ok()) {
        return WithContext(ran.error(), "operation " + std::to_string(index));
      }
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

  const KvLayout& layout() const { return spec_.cache->layers[0].layout; }
  int64_t KeyCols() const { return int64_t{layout().kv_heads} * layout().key_dim; }
  int64_t ValueCols() const { return int64_t{layout().kv_heads} * layout().value_dim; }

  // --- operations

  Status RunOp(const Json& op) {
    KVASIR_TRY(const std::string name, op.GetString("op"));
    KVASIR_TRY(const Json* expect, TraceMember(op, "expect"));
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
    } else if (name == "compact") {
      KVASIR_TRY_OK(Compact(op, *expect));
    } else if (name != "check") {
      not_yet_ = "operation " + name;
      return {};
    }
    return CompareAll(*expect);
  }

  Status New(const Json& op) {
    KVASIR_TRY(const Json* ids, TraceMember(op, "ids"));
    KVASIR_TRY(const auto names, TraceNames(*ids));
    return sequences_.AddBatch(names, spec_.cache);
  }

  Status Append(const Json& op, const Json& expect) {
    KVASIR_TRY(const Json* seqs, TraceMember(op, "seqs"));
    if (!seqs->is_object()) return MalformedTrace("'seqs' must be an object");
    for (const auto& [name, rows] : seqs->as_object()) {
      KVASIR_TRY(KvSequence* const sequence, sequences_.Find(name));
      KVASIR_TRY(const Json* keys_json, TraceMember(rows, "keys"));
      KVASIR_TRY(const Json* values_json, TraceMember(rows, "values"));
      KVASIR_TRY(const TraceTensor<float> keys, ReadFloatTensor(*keys_json));
      KVASIR_TRY(const TraceTensor<float> values, ReadFloatTensor(*values_json));
      KVASIR_TRY(const int64_t count, rows.GetInt("n"));
      const auto elements = static_cast<int64_t>(keys.data.size());
      if (count < 0 || count > elements || elements != spec_.layers * count * KeyCols() ||
          static_cast<int64_t>(values.data.size()) != spec_.layers * count * ValueCols()) {
        return MalformedTrace("keys and values of '" + name + "' do not fit n");
      }
      KVASIR_TRY_OK(sequence->Reserve(count));
      std::vector<KvRun> runs;
      for (int layer = 0; layer < spec_.layers; ++layer) {
        runs.push_back({.kv = sequence->Blocks(layer),
                        .first_row = sequence->RowOf(layer, sequence->position()),
                        .rows = count});
        const float* const layer_keys = keys.Part(layer, spec_.layers).data();
        const float* const layer_values = values.Part(layer, spec_.layers).data();
        backend_.EncodeKv(layout(), std::span(&runs.back(), 1),
                          ConstFloatRows(layer_keys, count, KeyCols(), KeyCols()),
                          ConstFloatRows(layer_values, count, ValueCols(), ValueCols()));
      }
      if (const Json* queries = rows.Find("queries"); queries != nullptr) {
        const TraceAttention attention = {backend_, spec_, tolerance_};
        KVASIR_TRY(const std::string difference,
                   attention.Compare({name, *queries, expect, *sequence, runs}));
        if (!difference.empty()) Fail("sequence '" + name + "', " + difference);
      }
      sequence->Advance(count);
    }
    return {};
  }

  Status Compact(const Json& op, const Json& expect) {
    KVASIR_TRY(const std::string id, op.GetString("id"));
    KVASIR_TRY(const std::string mode, op.GetString("mode"));
    KVASIR_TRY(KvSequence* const sequence, sequences_.Find(id));
    KVASIR_TRY(const bool compacted, sequence->Compact(mode == "auto" ? spec_.hysteresis : 0));
    KVASIR_TRY(const Json* wanted, TraceMember(expect, "compacted"));
    if (!wanted->is_bool() || wanted->as_bool() != compacted) {
      Fail("sequence '" + id + "' was " + (compacted ? "" : "not ") + "compacted");
    }
    return {};
  }

  Status Trim(const Json& op, const Json& expect) {
    KVASIR_TRY(const Json* seqs, TraceMember(op, "seqs"));
    if (!seqs->is_object()) return MalformedTrace("'seqs' must be an object");
    std::vector<std::string> refused;
    if (const Json* list = expect.Find("refused"); list != nullptr) {
      KVASIR_TRY(refused, TraceNames(*list));
    }
    for (const auto& [name, count] : seqs->as_object()) {
      if (!count.is_int()) return MalformedTrace("a trim count must be an integer");
      KVASIR_TRY(KvBatch* const batch, sequences_.BatchOf(name));
      if (std::find(refused.begin(), refused.end(), name) != refused.end()) {
        // The recorded engine had lost rows here. Ours may still hold them: tried on a fork, whose
        // rows must then be those of the earlier state; the trace goes on with what it expects.
        KVASIR_TRY_OK(TrimFork(name, *batch->Find(sequences_.IdOf(name)), count.as_int()));
        continue;
      }
      std::vector<int64_t> counts;
      for (const SequenceId id : batch->ids())
        counts.push_back(id == sequences_.IdOf(name) ? count.as_int() : 0);
      KVASIR_TRY(const auto reports, batch->TrimEach(counts));
      for (const TrimReport& report : reports) {
        if (report.id == sequences_.IdOf(name)) KVASIR_TRY_OK(CompareTrim(name, report, expect));
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
    for (int layer = 0; layer < spec_.layers; ++layer) {
      for (const int64_t row : TraceRows(fork, layer)) {
        if (fork.ReadKeys(layer, row) != sequence.ReadKeys(layer, row)) {
          Fail("sequence '" + name + "': row " + std::to_string(row) + " changed in a trim");
        }
      }
    }
    return {};
  }

  Status Fork(const Json& op) {
    const Json* source = op.Find("from") != nullptr ? op.Find("from") : op.Find("id");
    if (source == nullptr || !source->is_string()) return MalformedTrace("fork needs 'from'");
    KVASIR_TRY(const std::string to, op.GetString("to"));
    KVASIR_TRY(KvSequence* const from, sequences_.Find(source->as_string()));
    return sequences_.AddAlone(to, from->Fork());
  }

  Status Filter(const Json& op) {
    KVASIR_TRY(const Json* keep_json, TraceMember(op, "keep"));
    KVASIR_TRY(const auto keep, TraceNames(*keep_json));
    std::vector<std::string> dropped;
    if (const Json* json = op.Find("dropped"); json != nullptr) {
      KVASIR_TRY(dropped, TraceNames(*json));
    }
    if (keep.empty() && dropped.empty()) return MalformedTrace("filter names no sequence");
    for (const std::string& name : dropped) last_expected_.erase(name);
    return sequences_.Filter(keep.empty() ? dropped[0] : keep[0], keep);
  }

  // Brings the sequences into one batch, in the trace's order.
  Status MergeOrExtend(const Json& op, bool is_extend) {
    KVASIR_TRY(const Json* ids_json, TraceMember(op, "ids"));
    KVASIR_TRY(const auto names, TraceNames(*ids_json));
    if (names.empty()) return MalformedTrace("merge and extend name no sequence");
    if (is_extend) {
      KVASIR_TRY(const Json* with_json, TraceMember(op, "with"));
      KVASIR_TRY(const auto with, TraceNames(*with_json));
      if (with.empty()) return MalformedTrace("extend names no sequence to add");
      return sequences_.Extend(names[0], with[0]);
    }
    return sequences_.Merge(names);
  }

  // Through one file, so that what the sequences share is shared again.
  Status SaveLoad(const Json& op) {
    KVASIR_TRY(const Json* ids_json, TraceMember(op, "ids"));
    KVASIR_TRY(const auto names, TraceNames(*ids_json));
    KvSnapshotFile file;
    for (const std::string& name : names) {
      KVASIR_TRY(KvSequence* const sequence, sequences_.Find(name));
      file.sequences.push_back({name, sequence->Snapshot()});
    }
    // Several programs may replay side by side.
    const std::string path =
        scratch_folder_ + "/kvasir-replay-" + std::to_string(getpid()) + ".kvsnap";
    KVASIR_TRY_OK(SaveSnapshots(file, path));
    const auto loaded = LoadSnapshots(&pool_, path);
    std::remove(path.c_str());
    KVASIR_TRY_OK(loaded.status());
    for (const NamedSnapshot& saved : loaded->sequences) {
      KVASIR_TRY(KvSequence* const sequence, sequences_.Find(saved.name));
      KVASIR_TRY(*sequence, KvSequence::Restore(&pool_, saved.snapshot));
    }
    return {};
  }

  // --- comparison

  Status CompareAll(const Json& expect) {
    const Json* seqs = expect.Find("seqs");
    if (seqs != nullptr && seqs->is_object()) {
      for (const auto& [name, state] : seqs->as_object()) last_expected_[name] = state;
    }
    // A live sequence that the operation does not list must be as it was.
    for (const auto& [name, state] : last_expected_) {
      KVASIR_TRY(const KvSequence* const sequence, sequences_.Find(name));
      KVASIR_TRY(const std::string difference, CompareTraceState(*sequence, state));
      if (!difference.empty()) {
        Fail("sequence '" + name + "': " + difference);
        return {};
      }
    }
    return {};
  }

  Backend& backend_;
  const std::string scratch_folder_;
  KvPool pool_;
  TraceSpec spec_;
  double tolerance_ = 2e-5;

  TraceSequences sequences_;
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
