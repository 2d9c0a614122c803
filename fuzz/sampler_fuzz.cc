// Fuzzes the sampler: any options that Validate accepts, over any logits and any history.
// Deliberately also draws through the distribution: both ways must agree.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "kvasir/base/check.h"
#include "kvasir/base/rng.h"
#include "kvasir/sampling/sampler.h"

namespace {

// Takes values off the input; zeros once it is spent.
class Bytes {
 public:
  explicit Bytes(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  template <typename T>
  T Take() {
    T value = {};
    const size_t size = std::min(sizeof(T), bytes_.size());
    if (size > 0) std::memcpy(&value, bytes_.data(), size);
    bytes_ = bytes_.subspan(size);
    return value;
  }
  // A number near [0, 2], where most ranges are, or any double at all.
  double Number() {
    const auto kind = Take<uint8_t>();
    return kind == 255 ? Take<double>() : kind / 64.0 - (kind % 7 == 0 ? 1.0 : 0.0);
  }
  int64_t Small() { return Take<int8_t>(); }
  bool is_empty() const { return bytes_.empty(); }

 private:
  std::span<const uint8_t> bytes_;
};

kvasir::SamplingOptions TakeOptions(Bytes& bytes) {
  kvasir::SamplingOptions options;
  for (double* value :
       {&options.temperature, &options.top_p, &options.min_p, &options.repetition_penalty,
        &options.frequency_penalty, &options.presence_penalty, &options.typical_p,
        &options.top_n_sigma, &options.dynamic_temperature.range,
        &options.dynamic_temperature.exponent, &options.xtc.probability, &options.xtc.threshold,
        &options.dry.multiplier, &options.dry.base, &options.mirostat.tau, &options.mirostat.eta}) {
    const double number = bytes.Number();
    // 0 leaves the default: half of all options would be invalid otherwise.
    if (number != 0.0) *value = number;
  }
  options.top_k = bytes.Small();
  options.repeat_last_n = bytes.Small();
  options.dry.last_n = bytes.Small();
  options.dry.allowed_length = bytes.Small();
  options.mirostat.version = bytes.Small() % 4;
  options.seed = bytes.Take<uint64_t>();
  options.stages.clear();
  for (int64_t count = bytes.Take<uint8_t>() % 10; count > 0; --count) {
    options.stages.push_back(kvasir::DefaultStages()[bytes.Take<uint8_t>() % 9]);
  }
  if (bytes.Small() % 4 == 0) {
    const kvasir::Token token = bytes.Take<uint8_t>();
    options.logit_bias = {{token, bytes.Take<float>()}};
  }
  return options;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes bytes({data, size});
  const kvasir::SamplingOptions options = TakeOptions(bytes);
  std::vector<kvasir::Token> output(bytes.Take<uint8_t>());
  for (kvasir::Token& token : output) token = bytes.Take<int8_t>();
  std::vector<float> logits = {bytes.Take<float>()};
  while (!bytes.is_empty() && logits.size() < 4096) logits.push_back(bytes.Take<float>());
  const auto vocabulary = static_cast<int64_t>(logits.size());
  if (!options.Validate(vocabulary).ok()) return 0;

  kvasir::Sampler sampler;
  kvasir::MirostatState mirostat;
  const kvasir::TokenHistory history = {output, output, {}, nullptr, &mirostat};
  for (kvasir::Position position = 0; position < 2; ++position) {
    const auto distribution = sampler.Distribution(logits, options, position, history);
    const kvasir::Token token = sampler.Sample(logits, options, position, history);
    KVASIR_CHECK(token >= 0 && token < vocabulary);
    const double uniform = kvasir::UniformDouble(options.seed, static_cast<uint64_t>(position));
    KVASIR_CHECK(distribution.Draw(uniform) == token);
  }
  return 0;
}
