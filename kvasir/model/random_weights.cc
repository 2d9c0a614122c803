// Made-up weights, so that real shapes can be measured without their files.
// Deliberately not meant to say anything: activations only neither vanish nor explode.
#include <cmath>
#include <numeric>

#include "kvasir/model/weight_source.h"

namespace kvasir {
namespace {

class RandomWeights final : public WeightSource {
 public:
  RandomWeights(Backend& backend, WeightFormat format) : backend_(backend), format_(format) {}

  bool Has(const std::string&) const override { return true; }

  Result<std::unique_ptr<const WeightMatrix>> Matrix(const std::string& name, int64_t outputs,
                                                     int64_t inputs) override {
    return Make(Seed(name), outputs, inputs, format_);
  }

  Result<std::unique_ptr<const WeightMatrix>> ExactMatrix(const std::string& name, int64_t outputs,
                                                          int64_t inputs) override {
    return Make(Seed(name), outputs, inputs, IsQuantized(format_) ? WeightFormat::kBf16 : format_);
  }

  Result<std::unique_ptr<const WeightMatrix>> Rows(const MatrixSlice& slice) override {
    return Make(Seed(slice.name) + static_cast<uint64_t>(slice.first_row), slice.rows,
                slice.shape.back(), format_);
  }

  Result<std::unique_ptr<const WeightMatrix>> Gathered(const std::string& name, int64_t,
                                                       int64_t inputs,
                                                       std::span<const int64_t> rows,
                                                       bool is_exact) override {
    const bool is_dense = is_exact && IsQuantized(format_);
    return Make(Seed(name) + static_cast<uint64_t>(rows.front()), static_cast<int64_t>(rows.size()),
                inputs, is_dense ? WeightFormat::kBf16 : format_);
  }

  // An order of things: as they are.
  Result<std::vector<int64_t>> Integers(const std::string&, int64_t size) override {
    std::vector<int64_t> values(static_cast<size_t>(size));
    std::iota(values.begin(), values.end(), int64_t{0});
    return values;
  }

  Result<std::vector<float>> Vector(const std::string& name, int64_t size, float) override {
    const bool is_bias = name.size() > 5 && name.ends_with(".bias");
    return std::vector<float>(static_cast<size_t>(size), is_bias ? 0.0f : 1.0f);
  }

  Result<std::vector<float>> Numbers(const std::string& name,
                                     const std::vector<int64_t>& shape) override {
    const bool is_bias = name.find("bias") != std::string::npos;
    return std::vector<float>(static_cast<size_t>(RowCount(shape) * shape.back()),
                              is_bias ? 0.0f : 1.0f / static_cast<float>(shape.back()));
  }

  std::vector<std::string> Unused() const override { return {}; }

 private:
  // FNV-1a: any hash that is the same everywhere will do.
  static uint64_t Seed(const std::string& name) {
    uint64_t seed = 0xCBF29CE484222325ull;
    for (const char c : name) seed = (seed ^ static_cast<uint8_t>(c)) * 0x100000001B3ull;
    return seed;
  }

  Result<std::unique_ptr<const WeightMatrix>> Make(uint64_t seed, int64_t outputs, int64_t inputs,
                                                   WeightFormat format) {
    const bool fits = inputs % (IsQuantized(format) ? kQuantGroup : 2) == 0;
    // sqrt(3): a uniform variable on +-a has variance a^2 / 3.
    const float amplitude = std::sqrt(3.0f / static_cast<float>(inputs));
    return backend_.PackRandom(outputs, inputs,
                               fits || format < WeightFormat::kBf16 ? format : WeightFormat::kBf16,
                               amplitude, seed);
  }

  Backend& backend_;
  const WeightFormat format_;
};

}  // namespace

std::unique_ptr<WeightSource> MakeRandomWeights(Backend& backend, WeightFormat format) {
  return std::make_unique<RandomWeights>(backend, format);
}

}  // namespace kvasir
