// kvasir bench: prefill and decode speed of a model, beside what the machine allows.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>

#include "kvasir/base/system_info.h"
#include "kvasir/cli/bandwidth.h"
#include "kvasir/cli/commands.h"
#include "kvasir/cli/model_flags.h"
#include "kvasir/cli/output.h"

namespace kvasir {
namespace {

constexpr int64_t kFillChunk = 512;

double Seconds(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Some token of the vocabulary, never the same twice in a row.
Token AnyToken(int64_t i, int64_t vocab_size) {
  return static_cast<Token>((i * 7919 + 13) % vocab_size);
}

// A sequence of `depth` tokens with made-up rows: attention costs the same as after a real
// prefill, and a deep cache takes seconds to make instead of minutes.
Result<KvSequence> FilledSequence(ModelBundle& bundle, int64_t depth) {
  KVASIR_TRY(KvSequence sequence, KvSequence::Create(&bundle.pool(), bundle.cache_spec()));
  std::vector<float> noise;
  while (sequence.position() < depth) {
    const int64_t count = std::min({kFillChunk, depth - sequence.position(), sequence.RunLimit()});
    KVASIR_TRY_OK(sequence.Reserve(count));
    for (size_t i = 0; i < sequence.spec().layers.size(); ++i) {
      const KvLayerSpec& layer = sequence.spec().layers[i];
      if (!layer.owns_rows()) continue;
      const int64_t key_cols = int64_t{layer.layout.kv_heads} * layer.layout.key_dim;
      const int64_t value_cols = int64_t{layer.layout.kv_heads} * layer.layout.value_dim;
      const int64_t columns = std::max<int64_t>({key_cols, value_cols, layer.layout.query_floats});
      const size_t needed = static_cast<size_t>(count * columns);
      while (noise.size() < needed) {
        noise.push_back(static_cast<float>(noise.size() * 2654435761u % 1024) / 512 - 1);
      }
      const int index = static_cast<int>(i);
      const KvRun run = {.kv = sequence.Blocks(index),
                         .first_row = sequence.RowOf(index, sequence.position()),
                         .rows = count,
                         .recent = sequence.RecentBlocks(index)};
      bundle.backend().EncodeKv(layer.layout, std::span(&run, 1),
                                ConstFloatRows(noise.data(), count, key_cols, key_cols),
                                ConstFloatRows(noise.data(), count, value_cols, value_cols));
      if (layer.layout.query_floats > 0) {
        bundle.backend().RecordQueries(
            layer.layout, std::span(&run, 1),
            ConstFloatRows(noise.data(), count, layer.layout.query_floats,
                           layer.layout.query_floats));
      }
    }
    sequence.Advance(count);
  }
  return sequence;
}

// Keys and values of one row, as the query of row `query` reads it.
size_t RowBytes(const KvLayout& layout, int64_t row, int64_t query) {
  const bool recent = layout.dense_recent > 0 && row >= layout.RecentBegin(query);
  const KvBlockLayout block = recent ? layout.RecentBlock() : layout.BlockAt(row / kBlockTokens);
  return block.NormsOffset() / kBlockTokens;
}

// Bytes of cache that one token reads at the sequence's position.
size_t KvBytesRead(const KvSequence& sequence) {
  size_t bytes = 0;
  for (size_t i = 0; i < sequence.spec().layers.size(); ++i) {
    const KvLayerSpec& layer = sequence.spec().layers[i];
    bytes += layer.state_bytes;
    if (layer.is_recurrent()) continue;
    const KvLayout& layout = layer.layout;
    const VisibleRows visible = sequence.Visible(static_cast<int>(i), sequence.position());
    const int64_t query = visible.end - 1;
    for (int64_t row = 0; row < visible.end; ++row) {
      if (row >= visible.head_end && row < visible.begin) continue;
      bytes += RowBytes(layout, row, query);
    }
  }
  return bytes;
}

double KvBytesRead(const std::vector<KvSequence>& sequences) {
  double bytes = 0;
  for (const KvSequence& sequence : sequences) bytes += static_cast<double>(KvBytesRead(sequence));
  return bytes;
}

// More than any machine decodes at once.
constexpr int64_t kMostSequences = 4096;

// Of decoding, between two passes of reading: memory changes its speed within seconds.
constexpr double kSecondsBetweenPasses = 0.1;

struct Figure {
  std::string test;  // "pp512" or "tg128"
  int64_t depth = 0;
  int64_t batch = 1;
  std::vector<double> tokens_per_second;  // one per repetition
  std::vector<double> read_bandwidth;     // likewise, bytes per second of the same seconds
  double bytes_per_token_step = 0;        // decode: bytes one step must read; prefill: 0
  size_t kv_bytes = 0;
  size_t peak_resident_bytes = 0;

  // Of the repetitions.
  size_t best() const {
    return static_cast<size_t>(
        std::max_element(tokens_per_second.begin(), tokens_per_second.end()) -
        tokens_per_second.begin());
  }
};

class BenchCommand final : public Command {
 public:
  std::string name() const override { return "bench"; }
  std::string help() const override { return "measure prefill and decode speed"; }

  void Declare(Flags& flags) override {
    model_.Declare(flags);
    flags.Add("--pp", &prefill_tokens_, "prompt tokens to prefill, e.g. 512,2048; 0: none");
    flags.Add("--tg", &decode_tokens_, "tokens to decode, e.g. 128; 0: none");
    flags.Add("--depth", &depths_, "tokens in the cache before, e.g. 0,4096");
    flags.Add("--batch", &batches_, "sequences decoded together, e.g. 1,4,8");
    flags.Add("--chunk", &chunk_tokens_, "prompt tokens per forward pass");
    flags.Add("-r,--repeat", &repetitions_, "repetitions of each figure; the best is reported");
    flags.Add("--json", &is_json_, "one JSON object per figure instead of a table");
  }

  Status Run() override {
    KVASIR_TRY_OK(CheckFlags());
    KVASIR_TRY(bundle_, model_.Load());
    KVASIR_TRY_OK(CheckContext());
    meter_ = std::make_unique<BandwidthMeter>(
        model_.threads == 0 ? AvailableCores() : static_cast<int>(model_.threads));
    if (!is_json_) {
      KVASIR_TRY_OK(
          Print("test      depth batch   tokens/s  read, of read bandwidth      KV bytes\n"));
    }
    for (const int64_t depth : depths_) {
      for (const int64_t tokens : prefill_tokens_) {
        if (tokens == 0) continue;
        KVASIR_TRY_OK(MeasureAndReport([&] { return MeasurePrefill(tokens, depth); }));
      }
      for (const int64_t batch : batches_) {
        for (const int64_t tokens : decode_tokens_) {
          if (tokens == 0) continue;
          KVASIR_TRY_OK(MeasureAndReport([&] { return MeasureDecode(tokens, depth, batch); }));
        }
      }
    }
    return {};
  }

 private:
  Status CheckFlags() const {
    for (const auto& [flag, list] :
         {std::pair{"--pp", &prefill_tokens_}, {"--tg", &decode_tokens_}, {"--depth", &depths_}}) {
      for (const int64_t value : *list) KVASIR_TRY_OK(CheckRange(flag, value, 0, kNoMost));
    }
    const auto is_none = [](const std::vector<int64_t>& counts) {
      return std::ranges::all_of(counts, [](int64_t count) { return count == 0; });
    };
    if (is_none(prefill_tokens_) && is_none(decode_tokens_)) {
      return {ErrorCode::kInvalidArgument, "--pp and --tg are 0: there is nothing to measure"};
    }
    for (const int64_t batch : batches_) {
      KVASIR_TRY_OK(CheckRange("--batch", batch, 1, kMostSequences));
    }
    KVASIR_TRY_OK(CheckRange("--repeat", repetitions_, 1, kNoMost));
    return CheckRange("--chunk", chunk_tokens_, 1, kNoMost);
  }

  Status CheckContext() const {
    const int64_t context = bundle_->model().context_tokens();
    for (const int64_t depth : depths_) {
      // A step before those that count is decoded as well.
      for (const auto& [flag, list, more] :
           {std::tuple{"--pp", &prefill_tokens_, 0}, std::tuple{"--tg", &decode_tokens_, 1}}) {
        for (const int64_t tokens : *list) {
          if (tokens == 0 || (depth < context && tokens <= context - depth - more)) continue;
          return {ErrorCode::kInvalidArgument, std::string(flag) + " " + std::to_string(tokens) +
                                                   " behind --depth " + std::to_string(depth) +
                                                   " goes beyond the model's context of " +
                                                   std::to_string(context)};
        }
      }
    }
    return {};
  }

  template <typename Measurement>
  Status MeasureAndReport(const Measurement& measure) {
    ResetPeakResidentBytes();
    KVASIR_TRY(Figure figure, measure());
    // 0 where the system does not tell.
    figure.peak_resident_bytes = std::max(PeakResidentBytes(), meter_->bytes()) - meter_->bytes();
    return Report(figure);
  }

  // Ends a repetition.
  void AddRepetition(double tokens_per_second, Figure& figure) {
    meter_->Pass();
    figure.tokens_per_second.push_back(tokens_per_second);
    figure.read_bandwidth.push_back(meter_->bytes_per_second());
    meter_->Reset();
  }

  Result<Figure> MeasurePrefill(int64_t tokens, int64_t depth) {
    Figure figure{.test = "pp" + std::to_string(tokens), .depth = depth};
    KVASIR_TRY(const KvSequence base, FilledSequence(*bundle_, depth));
    std::vector<Token> prompt;
    for (int64_t i = 0; i < tokens; ++i)
      prompt.push_back(AnyToken(i, bundle_->model().vocab_size()));
    for (int64_t r = 0; r < repetitions_; ++r) {
      KvSequence sequence = base.Fork();
      Status status;
      const double seconds = Seconds([&] { status = Prefill(sequence, prompt); });
      KVASIR_TRY_OK(status);
      AddRepetition(static_cast<double>(tokens) / seconds, figure);
      figure.kv_bytes = sequence.nbytes();
    }
    return figure;
  }

  Status Prefill(KvSequence& sequence, std::span<const Token> prompt) {
    while (!prompt.empty()) {
      const auto limit = static_cast<size_t>(std::min(chunk_tokens_, sequence.RunLimit()));
      const auto part = prompt.first(std::min(prompt.size(), limit));
      prompt = prompt.subspan(part.size());
      const SequenceRun run = {&sequence, part, prompt.empty() ? 1 : 0};
      KVASIR_TRY_OK(bundle_->model().Forward(std::span(&run, 1), workspace_));
    }
    return {};
  }

  Result<Figure> MeasureDecode(int64_t tokens, int64_t depth, int64_t batch) {
    Figure figure{.test = "tg" + std::to_string(tokens), .depth = depth, .batch = batch};
    std::vector<KvSequence> base;
    for (int64_t i = 0; i < batch; ++i) {
      KVASIR_TRY(KvSequence sequence, FilledSequence(*bundle_, depth));
      base.push_back(std::move(sequence));
    }
    for (int64_t r = 0; r < repetitions_; ++r) {
      std::vector<KvSequence> sequences;
      for (const KvSequence& sequence : base) sequences.push_back(sequence.Fork());
      // The copy of shared tail blocks belongs to the forks, not to decoding: one step before.
      KVASIR_TRY_OK(DecodeStep(sequences, -1));
      const double first_read = KvBytesRead(sequences);
      double last_read = first_read;
      const uint64_t weights_before = bundle_->backend().weight_bytes_read();
      double seconds = 0;
      double since_pass = 0;
      for (int64_t i = 0; i < tokens; ++i) {
        if (i + 1 == tokens) last_read = KvBytesRead(sequences);
        Status status;
        const double step = Seconds([&] { status = DecodeStep(sequences, i); });
        KVASIR_TRY_OK(status);
        seconds += step;
        since_pass += step;
        if (since_pass < kSecondsBetweenPasses) continue;
        meter_->Pass();
        since_pass = 0;
      }
      figure.kv_bytes = 0;
      for (const KvSequence& sequence : sequences) figure.kv_bytes += sequence.nbytes();
      AddRepetition(static_cast<double>(tokens * batch) / seconds, figure);
      const uint64_t weights = bundle_->backend().weight_bytes_read() - weights_before;
      figure.bytes_per_token_step =
          static_cast<double>(weights) / static_cast<double>(tokens) + (first_read + last_read) / 2;
    }
    return figure;
  }

  Status DecodeStep(std::vector<KvSequence>& sequences, int64_t i) {
    std::vector<Token> tokens;
    std::vector<SequenceRun> runs;
    for (size_t s = 0; s < sequences.size(); ++s) {
      tokens.push_back(AnyToken(i + 1 + static_cast<int64_t>(s), bundle_->model().vocab_size()));
    }
    for (size_t s = 0; s < sequences.size(); ++s) {
      runs.push_back({&sequences[s], std::span(tokens).subspan(s, 1), 1});
    }
    KVASIR_TRY_OK(bundle_->model().Forward(runs, workspace_));
    return {};
  }

  Status Report(const Figure& figure) const {
    const double best = figure.tokens_per_second[figure.best()];
    const double bandwidth = figure.read_bandwidth[figure.best()];
    const double steps_per_second = best / static_cast<double>(figure.batch);
    const double bytes_per_second = figure.bytes_per_token_step * steps_per_second;
    if (is_json_) {
      Json json;
      json.Set("model", bundle_->name());
      json.Set("backend", bundle_->backend().Describe());
      json.Set("weights", model_.weights);
      json.Set("cache", bundle_->DescribeCache());
      json.Set("test", figure.test);
      json.Set("depth", figure.depth);
      json.Set("batch", figure.batch);
      json.Set("tokens_per_second", best);
      json.Set("tokens_per_second_all",
               Json::Array(figure.tokens_per_second.begin(), figure.tokens_per_second.end()));
      json.Set("gb_per_second", bytes_per_second / 1e9);
      json.Set("read_gb_per_second", bandwidth / 1e9);
      json.Set("weight_bytes", static_cast<uint64_t>(bundle_->model().weight_bytes()));
      json.Set("kv_bytes", static_cast<uint64_t>(figure.kv_bytes));
      json.Set("peak_rss_bytes", static_cast<uint64_t>(figure.peak_resident_bytes));
      return PrintJson(json);
    }
    // Prefill is limited by arithmetic: its share of the read bandwidth would say nothing.
    char share[64] = "-";
    if (bytes_per_second > 0 && bandwidth > 0) {
      std::snprintf(share, sizeof(share), "%.1f GB/s = %.0f %% of %.1f", bytes_per_second / 1e9,
                    100 * bytes_per_second / bandwidth, bandwidth / 1e9);
    }
    char line[200];
    std::snprintf(line, sizeof(line), "%-8s %6lld %5lld %10.1f  %-28s %10s\n", figure.test.c_str(),
                  static_cast<long long>(figure.depth), static_cast<long long>(figure.batch), best,
                  share, FormatBytes(figure.kv_bytes).c_str());
    return Print(line);
  }

  ModelFlags model_;
  std::vector<int64_t> prefill_tokens_ = {512};
  std::vector<int64_t> decode_tokens_ = {128};
  std::vector<int64_t> depths_ = {0};
  std::vector<int64_t> batches_ = {1};
  int64_t chunk_tokens_ = 512;
  int64_t repetitions_ = 3;
  bool is_json_ = false;

  std::unique_ptr<ModelBundle> bundle_;
  std::unique_ptr<BandwidthMeter> meter_;
  Workspace workspace_;
};

}  // namespace

std::unique_ptr<Command> MakeBenchCommand() { return std::make_unique<BenchCommand>(); }

}  // namespace kvasir
