// How far a model's predictions move when its cache is stored in fewer bits, on any model and any
// text: perplexity, Kullback-Leibler divergence from the same model over an f32 cache, and how
// often the likeliest token is the same. A Markdown table to stdout. Deliberately no answers and no
// speed: kv_quality asks the bundled model, `kvasir bench` measures.
//   kv_divergence MODEL TEXT_FILE [TOKENS = 1024] [CODEC[@auto|int16|int8|float] ...]
// CODEC as in snapshots (f16, affine8:64, affine4:64+rot, turbo4, ...). Layers that
// --kv-dense-layers auto leaves at 16 bits stay there, sliding windows too, as with --kv-bits.
// Weights are multiplied in f32, as quantized activations turn the smallest difference into one of
// their steps.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/bench_util.h"
#include "kvasir/base/file.h"
#include "kvasir/engine/model_bundle.h"
#include "kvasir/kv/kv_policy.h"

namespace kvasir {
namespace {

constexpr size_t kChunk = 256;

// A cache and how attention multiplies it.
struct Setting {
  std::string name;
  KvCodec codec;
  AttentionMath math = AttentionMath::kAuto;
};

Setting ParseSetting(const std::string& name) {
  Setting setting;
  setting.name = name;
  const size_t at = name.find('@');
  setting.codec = Must(KvCodec::FromName(name.substr(0, at)));
  if (at != std::string::npos) {
    setting.math = Must(AttentionMathFromName(name.substr(at + 1)));
  }
  return setting;
}

// The logarithms of a row's probabilities, from its logits.
void LogSoftmax(const float* logits, int64_t count, float* out) {
  const double most = *std::max_element(logits, logits + count);
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += std::exp(logits[i] - most);
  const double shift = most + std::log(sum);
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(logits[i] - shift);
}

// One model whose cache is stored in one way, in the middle of a text.
class Reader {
 public:
  Reader(ModelBundle* bundle, KvCodec codec) : bundle_(bundle) {
    KvPolicy policy;
    policy.key_codec = codec;
    policy.value_codec = codec;
    const Model& model = bundle->model();
    const auto spec = std::make_shared<const KvCacheSpec>(
        Must(policy.Apply(model.CacheSpec({}), model.query_heads())));
    sequence_ = std::make_unique<KvSequence>(Must(KvSequence::Create(&bundle->pool(), spec)));
  }

  // Logits after each of the tokens, valid until the next call.
  ConstFloatRows Read(std::span<const Token> tokens) {
    const SequenceRun run = {sequence_.get(), tokens, static_cast<int64_t>(tokens.size())};
    return Must(bundle_->model().Forward(std::span(&run, 1), workspace_));
  }
  double bytes() const { return static_cast<double>(sequence_->nbytes()); }

 private:
  ModelBundle* bundle_;
  std::unique_ptr<KvSequence> sequence_;
  Workspace workspace_;
};

struct Divergence {
  double nats = 0;       // of the text's own tokens
  double base_nats = 0;  // the same over the f32 cache
  double divergence = 0;
  double same = 0;
  double bytes = 0;
};

Divergence Measure(ModelBundle* base_bundle, ModelBundle* bundle, const Setting& setting,
                   const std::vector<Token>& tokens) {
  Reader base(base_bundle, {KvCodec::Kind::kF32});
  Reader reader(bundle, setting.codec);
  Divergence all;
  std::vector<float> wanted, got;
  for (size_t begin = 0; begin < tokens.size(); begin += kChunk) {
    const auto chunk = std::span(tokens).subspan(begin, std::min(kChunk, tokens.size() - begin));
    const ConstFloatRows base_logits = base.Read(chunk);
    const ConstFloatRows logits = reader.Read(chunk);
    wanted.resize(static_cast<size_t>(logits.cols));
    got.resize(wanted.size());
    for (size_t i = 0; i < chunk.size() && begin + i + 1 < tokens.size(); ++i) {
      const auto row = static_cast<int64_t>(i);
      LogSoftmax(base_logits.row(row), logits.cols, wanted.data());
      LogSoftmax(logits.row(row), logits.cols, got.data());
      for (size_t t = 0; t < wanted.size(); ++t) {
        all.divergence += std::exp(wanted[t]) * (wanted[t] - got[t]);
      }
      const auto next = static_cast<size_t>(tokens[begin + i + 1]);
      all.nats -= got[next];
      all.base_nats -= wanted[next];
      all.same += std::ranges::max_element(wanted) - wanted.begin() ==
                          std::ranges::max_element(got) - got.begin()
                      ? 1
                      : 0;
    }
  }
  const double count = static_cast<double>(tokens.size() - 1);
  for (double* sum : {&all.nats, &all.base_nats, &all.divergence, &all.same}) *sum /= count;
  all.bytes = reader.bytes() / static_cast<double>(tokens.size());
  return all;
}

std::unique_ptr<ModelBundle> Load(const std::string& path, AttentionMath math) {
  BundleOptions options;
  options.weight_format = WeightFormat::kF32;
  options.backend.attention = math;
  options.kv_budget_bytes = size_t{2} << 30;
  return Must(ModelBundle::Load(path, options));
}

int Main(int argc, char** argv) {
  const int64_t most = argc > 3 ? std::atoll(argv[3]) : 1024;
  if (argc < 3 || most < 2) {
    std::fprintf(stderr, "usage: kv_divergence MODEL TEXT_FILE [TOKENS] [CODEC[@MATH] ...]\n");
    return 2;
  }
  std::vector<std::string> names(argv + std::min(argc, 4), argv + argc);
  if (names.empty()) {
    names = {"f16",
             "f16@float",
             "bf16",
             "affine8:64",
             "affine8:64@int16",
             "affine8:64@int8",
             "affine8:64@float",
             "affine8:64+rot",
             "affine8:64+rot@int8",
             "affine8:64+rot@float",
             "affine6:64",
             "affine6:64+rot",
             "affine4:64",
             "affine4:64@float",
             "affine4:64+rot",
             "turbo4",
             "turbo3"};
  }
  // One model in memory for each kind of attention, and one for the f32 cache.
  std::map<AttentionMath, std::unique_ptr<ModelBundle>> bundles;
  const auto base = Load(argv[1], AttentionMath::kAuto);
  if (base->tokenizer() == nullptr) {
    std::fprintf(stderr, "kv_divergence: %s has no tokenizer\n", argv[1]);
    return 1;
  }
  std::vector<Token> tokens = base->tokenizer()->Encode(Must(ReadFile(argv[2])));
  if (static_cast<int64_t>(tokens.size()) > most) tokens.resize(static_cast<size_t>(most));
  if (tokens.size() < 2) {
    std::fprintf(stderr, "kv_divergence: %s has fewer than two tokens\n", argv[2]);
    return 1;
  }
  std::printf(
      "%zu tokens\n\n| cache | bytes per token | perplexity | f32 cache | divergence, nats | "
      "same likeliest token |\n|---|---|---|---|---|---|\n",
      tokens.size());
  for (const std::string& name : names) {
    const Setting setting = ParseSetting(name);
    auto& bundle = bundles[setting.math];
    if (bundle == nullptr) bundle = Load(argv[1], setting.math);
    const Divergence all = Measure(base.get(), bundle.get(), setting, tokens);
    std::printf("| %s | %.0f | %.4f | %.4f | %.2e | %.2f %% |\n", name.c_str(), all.bytes,
                std::exp(all.nats), std::exp(all.base_nats), all.divergence, 100 * all.same);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) { return kvasir::Main(argc, argv); }
