// What each cache format and each eviction score costs in quality, on the bundled model: error of
// attention on its real keys, perplexity, and answers to look-up items. Markdown tables to stdout.
// Deliberately no speed: kv_attention_bench and `kvasir bench` measure that.
//   kv_quality MODEL_FOLDER ITEMS.jsonl [MATH] [codecs|evictions|attention|weights|FORMAT ...]
// `weights` compares weight formats instead, over an f32 cache; it is measured only when named.
// Formats, such as affine8:64, are those to measure; without any all are.
// MATH is how attention calculates: auto (unless given), int16, int8 or float.
// An item is {"task", "prompt", "answer"}; tools/train_demo writes them.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "bench/bench_util.h"
#include "kvasir/base/check.h"
#include "kvasir/base/file.h"
#include "kvasir/engine/generator.h"
#include "kvasir/kv/kv_policy.h"
#include "kvasir/kv/row_scores.h"

namespace kvasir {
namespace {

// Perplexity counts tokens from here on: before, there is little that a cache could have lost.
constexpr size_t kPerplexityStart = 256;
constexpr int64_t kChunk = 512;

struct Item {
  std::string task;
  std::vector<Token> prompt;
  std::vector<Token> answer;
  std::string text;  // of the answer
};

std::string Trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \n");
  const size_t end = text.find_last_not_of(" \n");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

std::vector<Item> ReadItems(const ModelBundle& bundle, const std::string& path) {
  std::vector<Item> items;
  std::istringstream lines(Must(ReadFile(path)));
  for (std::string line; std::getline(lines, line);) {
    const Json json = Must(Json::Parse(line));
    const Json messages = Json::Array{
        Json(Json::Object{{"role", "user"}, {"content", Must(json.GetString("prompt"))}})};
    Item item;
    item.task = Must(json.GetString("task"));
    item.text = Must(json.GetString("answer"));
    item.prompt = Must(bundle.ChatTokens(messages));
    item.answer = bundle.tokenizer()->Encode(item.text, {.add_special = false});
    items.push_back(std::move(item));
  }
  return items;
}

// How one column of a table stores the cache of a prompt of so many tokens.
struct Setting {
  std::string name;
  std::function<KvPolicy(int64_t prompt_tokens)> policy;
};

struct Quality {
  double answer_nats = 0;  // teacher-forced, per token of look-up answers
  double text_nats = 0;    // of the prompts' own text
  int right = 0;
  int all = 0;
  double bytes_per_token = 0;
};

bool IsLookup(const Item& item) { return item.task == "passkey" || item.task == "kv"; }

class Bench {
 public:
  Bench(const std::string& folder, const std::string& items, AttentionMath math,
        std::optional<WeightFormat> weights = std::nullopt)
      : bundle_(Must(ModelBundle::Load(folder, Options(math, weights)))),
        items_(ReadItems(*bundle_, items)) {}

  Quality Measure(const Setting& setting) {
    Quality quality;
    double answer_tokens = 0;
    double text_tokens = 0;
    double cached_bytes = 0;
    double cached_tokens = 0;
    for (const Item& item : items_) {
      const auto spec = SpecOf(setting, static_cast<int64_t>(item.prompt.size()));
      if (IsLookup(item)) {
        quality.right += Answer(item, spec) == Trimmed(item.text);
        ++quality.all;
      }
      std::vector<Token> tokens = item.prompt;
      tokens.insert(tokens.end(), item.answer.begin(), item.answer.end());
      const std::vector<double> nats = Nats(tokens, spec, &cached_bytes);
      cached_tokens += static_cast<double>(tokens.size());
      for (size_t i = 1; i < tokens.size(); ++i) {
        if (i >= item.prompt.size()) {
          if (!IsLookup(item)) continue;
          quality.answer_nats += nats[i];
          ++answer_tokens;
        } else if (i >= kPerplexityStart) {
          quality.text_nats += nats[i];
          ++text_tokens;
        }
      }
    }
    quality.answer_nats /= std::max(answer_tokens, 1.0);
    quality.text_nats /= std::max(text_tokens, 1.0);
    quality.bytes_per_token = cached_bytes / cached_tokens;
    return quality;
  }

  // Relative error of attention outputs on the real rows of full-attention layers, against f32.
  void MeasureAttention(const std::vector<std::pair<std::string, KvPolicy>>& formats);

 private:
  // What a full-attention layer held after a real prompt, and the queries of its last 64 tokens.
  struct RealLayer {
    int index = 0;
    KvLayout layout;
    int64_t count = 0;  // rows
    KvRows rows;
    std::vector<float> queries;  // [64, query_heads * key_dim]
  };
  std::vector<RealLayer> RealLayers();
  // Outputs of those queries, [64, query_heads * value_dim], over the rows in these formats.
  std::vector<float> Attend(const RealLayer& layer, KvCodec keys, KvCodec values);

  static BundleOptions Options(AttentionMath math, std::optional<WeightFormat> weights) {
    BundleOptions options;
    options.weight_format = weights;
    options.backend.attention = math;
    options.kv_budget_bytes = size_t{512} << 20;
    return options;
  }

  std::shared_ptr<const KvCacheSpec> SpecOf(const Setting& setting, int64_t prompt_tokens) const {
    const Model& model = bundle_->model();
    return std::make_shared<const KvCacheSpec>(
        Must(setting.policy(prompt_tokens).Apply(model.CacheSpec({}), model.query_heads())));
  }

  std::string Answer(const Item& item, std::shared_ptr<const KvCacheSpec> spec) {
    GenerationRequest request;
    request.prompt = item.prompt;
    request.max_tokens = 24;
    CachedSequence sequence =
        Must(CachedSequence::Create(&bundle_->model(), &bundle_->pool(), std::move(spec)));
    Generator generator(bundle_.get());
    return Trimmed(Must(generator.Generate(request, sequence)).text);
  }

  // -log p of every token after the first.
  std::vector<double> Nats(const std::vector<Token>& tokens,
                           std::shared_ptr<const KvCacheSpec> spec, double* cached_bytes) {
    KvSequence sequence = Must(KvSequence::Create(&bundle_->pool(), std::move(spec)));
    std::vector<double> nats(tokens.size(), 0);
    for (size_t begin = 0; begin < tokens.size();) {
      const auto limit = static_cast<size_t>(std::min(kChunk, sequence.RunLimit()));
      const size_t count = std::min(limit, tokens.size() - begin);
      const SequenceRun run = {&sequence, std::span(tokens).subspan(begin, count),
                               static_cast<int64_t>(count)};
      const ConstFloatRows logits = Must(bundle_->model().Forward(std::span(&run, 1), workspace_));
      for (size_t i = 0; i < count && begin + i + 1 < tokens.size(); ++i) {
        nats[begin + i + 1] = NatsOf(logits, static_cast<int64_t>(i), tokens[begin + i + 1]);
      }
      begin += count;
    }
    *cached_bytes += static_cast<double>(sequence.nbytes());
    return nats;
  }

  static double NatsOf(ConstFloatRows logits, int64_t row, Token token) {
    const float* const x = logits.row(row);
    const double max = *std::max_element(x, x + logits.cols);
    double sum = 0;
    for (int64_t i = 0; i < logits.cols; ++i) sum += std::exp(x[i] - max);
    return max + std::log(sum) - x[token];
  }

  std::unique_ptr<ModelBundle> bundle_;
  std::vector<Item> items_;
  Workspace workspace_;
};

KvPolicy Packed(KvCodec keys, KvCodec values) {
  KvPolicy policy;
  policy.key_codec = keys;
  policy.value_codec = values;
  policy.dense_layers = KvPolicy::DenseLayers::kNone;
  policy.window_layers = KvPolicy::WindowLayers::kPacked;
  return policy;
}

std::vector<std::pair<std::string, KvPolicy>> Formats() {
  const KvCodec f16 = {KvCodec::Kind::kF16};
  std::vector<std::pair<std::string, KvPolicy>> formats;
  for (const KvCodec::Kind kind :
       {KvCodec::Kind::kF32, KvCodec::Kind::kF16, KvCodec::Kind::kBf16}) {
    formats.emplace_back(KvCodec{kind}.name(), Packed({kind}, {kind}));
  }
  for (const bool rotated : {false, true}) {
    for (const int bits : {8, 6, 5, 4, 3, 2}) {
      const KvCodec codec = KvCodec::Affine(bits, 64, KvCodec::Scales::kF16, rotated);
      formats.emplace_back(codec.name(), Packed(codec, codec));
    }
  }
  formats.emplace_back("K affine8:64, V affine4:64",
                       Packed(KvCodec::Affine(8, 64), KvCodec::Affine(4, 64)));
  formats.emplace_back("K affine4:64, V affine8:64",
                       Packed(KvCodec::Affine(4, 64), KvCodec::Affine(8, 64)));
  for (const int half_bits : {8, 7, 6, 5, 4}) {
    const KvCodec keys = KvCodec::Turbo(half_bits / 2);
    const KvCodec values = KvCodec::Turbo((half_bits + 1) / 2);
    const std::string name =
        half_bits % 2 == 0 ? keys.name() : "turbo" + std::to_string(half_bits / 2) + ".5";
    formats.emplace_back(name, Packed(keys, values));
  }
  formats.emplace_back("K f16, V turbo3", Packed(f16, KvCodec::Turbo(3)));
  formats.emplace_back("K turbo3, V f16", Packed(KvCodec::Turbo(3), f16));
  return formats;
}

std::vector<Bench::RealLayer> Bench::RealLayers() {
  // The longest item gives the rows; its last whole block the queries.
  const Item& item = *std::max_element(
      items_.begin(), items_.end(),
      [](const Item& a, const Item& b) { return a.prompt.size() < b.prompt.size(); });
  KvCacheSpec spec = bundle_->model().CacheSpec({KvCodec::Kind::kF32});
  const int64_t block = static_cast<int64_t>(item.prompt.size()) / kBlockTokens - 1;
  const int64_t rows = (block + 1) * kBlockTokens;
  std::vector<RealLayer> layers;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    KvLayerSpec& layer = spec.layers[i];
    if (layer.is_recurrent() || layer.retention.kind != RetentionSpec::Kind::kAll) continue;
    layers.push_back({.index = static_cast<int>(i), .layout = layer.layout, .count = rows});
    // A budget that is about to be full has recorded the last queries.
    layer.retention = {.kind = RetentionSpec::Kind::kBudget,
                       .size = kBlockTokens,
                       .interval = rows - kBlockTokens,
                       .score = RowScore::kTova};
    layer.layout.query_floats = bundle_->model().query_heads() * layer.layout.key_dim;
    layer.layout.observed_block = block;
  }
  KvSequence sequence =
      Must(KvSequence::Create(&bundle_->pool(), std::make_shared<const KvCacheSpec>(spec)));
  const auto tokens = std::span(item.prompt).first(static_cast<size_t>(rows));
  const SequenceRun prompt = {&sequence, tokens, 0};
  Must(bundle_->model().Forward(std::span(&prompt, 1), workspace_));
  for (RealLayer& layer : layers) {
    const KvLayout& observed = spec.layers[static_cast<size_t>(layer.index)].layout;
    const auto* const queries = reinterpret_cast<const float*>(
        sequence.Blocks(layer.index).block(block) + observed.BlockAt(block).QueriesOffset());
    layer.queries.assign(queries, queries + kBlockTokens * observed.query_floats);
    layer.rows = sequence.ReadRows(layer.index, 0, rows);
  }
  return layers;
}

std::vector<float> Bench::Attend(const RealLayer& layer, KvCodec keys, KvCodec values) {
  KvLayout layout = layer.layout;
  layout.key_codec = keys;
  layout.value_codec = values;
  KvSequence sequence = Must(
      KvSequence::Create(&bundle_->pool(), std::make_shared<const KvCacheSpec>(KvCacheSpec::Uniform(
                                               1, {.layout = layout, .retention = {}}))));
  KVASIR_CHECK(sequence.Reserve(layer.count).ok());
  const KvRun all = {.kv = sequence.Blocks(0), .rows = layer.count};
  const int64_t key_cols = int64_t{layout.kv_heads} * layout.key_dim;
  const int64_t value_cols = int64_t{layout.kv_heads} * layout.value_dim;
  Backend& backend = bundle_->backend();
  backend.EncodeKv(layout, std::span(&all, 1),
                   ConstFloatRows(layer.rows.keys.data(), layer.count, key_cols, key_cols),
                   ConstFloatRows(layer.rows.values.data(), layer.count, value_cols, value_cols));
  const int64_t first = layer.count - kBlockTokens;
  std::vector<VisibleRows> visible;
  for (int64_t i = 0; i < kBlockTokens; ++i) visible.push_back({0, 0, first + i + 1});
  const KvRun last = {.kv = sequence.Blocks(0), .first_row = first, .rows = kBlockTokens};
  const int query_heads = bundle_->model().query_heads();
  const int64_t in_cols = int64_t{query_heads} * layout.key_dim;
  const int64_t out_cols = int64_t{query_heads} * layout.value_dim;
  std::vector<float> out(static_cast<size_t>(kBlockTokens * out_cols));
  AttendArgs args;
  args.layout = layout;
  args.query_heads = query_heads;
  args.scale = 1 / std::sqrt(static_cast<float>(layout.key_dim));
  args.queries = ConstFloatRows(layer.queries.data(), kBlockTokens, in_cols, in_cols);
  args.runs = std::span(&last, 1);
  args.visible = visible;
  args.out = FloatRows(out.data(), kBlockTokens, out_cols, out_cols);
  backend.Attend(args);
  return out;
}

double RelativeError(const std::vector<float>& out, const std::vector<float>& reference) {
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    error += std::pow(double{out[i]} - reference[i], 2);
    norm += std::pow(double{reference[i]}, 2);
  }
  return std::sqrt(error / norm);
}

void Bench::MeasureAttention(const std::vector<std::pair<std::string, KvPolicy>>& formats) {
  const std::vector<RealLayer> layers = RealLayers();
  if (layers.empty()) return;
  std::printf("\nRelative error of attention outputs over %lld real rows, 64 real queries:\n\n",
              static_cast<long long>(layers[0].count));
  std::string rule = "|---|---|";
  std::printf("| format | bits per element |");
  for (const RealLayer& layer : layers) {
    std::printf(" layer %d |", layer.index);
    rule += "---|";
  }
  std::printf("\n%s\n", rule.c_str());
  for (const auto& [name, policy] : formats) {
    const KvLayout& shape = layers[0].layout;
    const size_t bytes =
        policy.key_codec.HeadBytes(shape.key_dim) + policy.value_codec.HeadBytes(shape.value_dim);
    std::printf("| %s | %.2f |", name.c_str(),
                8.0 * static_cast<double>(bytes) /
                    (kBlockTokens * static_cast<double>(shape.key_dim + shape.value_dim)));
    for (const RealLayer& layer : layers) {
      const std::vector<float> reference =
          Attend(layer, {KvCodec::Kind::kF32}, {KvCodec::Kind::kF32});
      std::printf(" %.2e |",
                  RelativeError(Attend(layer, policy.key_codec, policy.value_codec), reference));
    }
    std::printf("\n");
  }
}

void PrintHeader(const char* first) {
  std::printf(
      "\n| %s | bytes per token | perplexity, text | perplexity, answers | look-ups right |\n"
      "|---|---|---|---|---|\n",
      first);
}

void PrintQuality(const std::string& name, const Quality& quality) {
  std::printf("| %s | %.0f | %.4f | %.4f | %d of %d |\n", name.c_str(), quality.bytes_per_token,
              std::exp(quality.text_nats), std::exp(quality.answer_nats), quality.right,
              quality.all);
  std::fflush(stdout);
}

void MeasureCodecs(Bench& bench, const std::vector<std::pair<std::string, KvPolicy>>& formats) {
  PrintHeader("all layers");
  for (const auto& [name, policy] : formats) {
    const KvPolicy& format = policy;
    PrintQuality(name, bench.Measure({name, [&](int64_t) { return format; }}));
  }
}

void MeasureWeights(const std::string& folder, const std::string& items, AttentionMath math) {
  PrintHeader("weights");
  for (const std::optional<WeightFormat> format :
       {std::optional<WeightFormat>(), std::optional(WeightFormat::kF32),
        std::optional(WeightFormat::kF16), std::optional(WeightFormat::kBf16),
        std::optional(WeightFormat::kBf16Dot), std::optional(WeightFormat::kQ8),
        std::optional(WeightFormat::kQ4)}) {
    Bench bench(folder, items, math, format);
    const KvPolicy cache = Packed({KvCodec::Kind::kF32}, {KvCodec::Kind::kF32});
    PrintQuality(format ? std::string(WeightFormatName(*format)) : "as stored",
                 bench.Measure({"", [&](int64_t) { return cache; }}));
  }
}

bool Names(const std::vector<std::string>& words, const std::string& name) {
  return std::ranges::find(words, name) != words.end();
}

void MeasureEvictions(Bench& bench) {
  PrintHeader("score, share of the prompt kept");
  PrintQuality("everything", bench.Measure({"", [](int64_t) { return KvPolicy(); }}));
  for (const int percent : {75, 50, 25}) {
    for (const RowScore score :
         {RowScore::kRandom, RowScore::kKnorm, RowScore::kKnormHigh, RowScore::kKeyDiff,
          RowScore::kLagKv, RowScore::kStreaming, RowScore::kTova, RowScore::kExpectedAttention}) {
      const auto policy = [&](int64_t prompt_tokens) {
        KvPolicy policy;
        RetentionSpec budget;
        budget.kind = RetentionSpec::Kind::kBudget;
        budget.size = std::max<int64_t>(RoundUpToBlocks(prompt_tokens * percent / 100), 128);
        budget.keep = 4;
        budget.recent = 64;
        budget.interval = 64;
        budget.score = score;
        policy.budget = budget;
        return policy;
      };
      const std::string name =
          std::string(RowScoreName(score)) + ", " + std::to_string(percent) + " %";
      PrintQuality(name, bench.Measure({name, policy}));
    }
  }
}

int Main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr,
                 "usage: kv_quality MODEL_FOLDER ITEMS.jsonl [auto|int16|int8|float] "
                 "[attention|codecs|evictions|weights|FORMAT ...]\n");
    return 2;
  }
  const auto named = AttentionMathFromName(argc > 3 ? argv[3] : "auto");
  const AttentionMath math = named.ok() ? *named : AttentionMath::kAuto;
  const std::vector<std::string> words(argv + (argc > 3 && named.ok() ? 4 : 3), argv + argc);
  auto formats = Formats();
  for (const std::string& word : words) {
    if (Names({"attention", "codecs", "evictions", "weights"}, word) ||
        std::ranges::any_of(formats, [&](const auto& f) { return f.first == word; })) {
      continue;
    }
    std::fprintf(stderr, "'%s' is no part and no format\n", word.c_str());
    return 2;
  }
  if (Names(words, "weights")) {
    MeasureWeights(argv[1], argv[2], math);
    return 0;
  }
  Bench bench(argv[1], argv[2], math);
  std::vector<std::string> parts;
  if (std::ranges::any_of(formats, [&](const auto& f) { return Names(words, f.first); })) {
    std::erase_if(formats, [&](const auto& f) { return !Names(words, f.first); });
  }
  for (const char* part : {"attention", "codecs", "evictions"}) {
    if (Names(words, part)) parts.emplace_back(part);
  }
  if (parts.empty()) parts = {"attention", "codecs", "evictions"};
  for (const std::string& part : parts) {
    if (part == "attention") bench.MeasureAttention(formats);
    if (part == "codecs") MeasureCodecs(bench, formats);
    if (part == "evictions") MeasureEvictions(bench);
  }
  return 0;
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) { return kvasir::Main(argc, argv); }
