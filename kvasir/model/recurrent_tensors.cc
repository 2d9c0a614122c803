#include "kvasir/model/recurrent_tensors.h"

#include "kvasir/base/scalar_math.h"

namespace kvasir {

Result<std::vector<float>> LoadTaps(WeightSource& source, const std::string& name, int64_t channels,
                                    int64_t width) {
  // The taps of a channel follow each other in all of these.
  std::vector<int64_t> shape = {channels, 1, width};
  for (const std::vector<int64_t>& known :
       {std::vector<int64_t>{channels, width, 1}, std::vector<int64_t>{channels, width}}) {
    if (source.Shape(name) == known) shape = known;
  }
  KVASIR_TRY(const std::vector<float> stored, source.Numbers(name, shape));
  std::vector<float> taps(stored.size());
  for (size_t i = 0; i < stored.size(); ++i) {
    const size_t channel = i / static_cast<size_t>(width);
    const size_t tap = i % static_cast<size_t>(width);
    taps[tap * static_cast<size_t>(channels) + channel] = stored[i];
  }
  return taps;
}

Result<std::vector<float>> LoadNumbers(WeightSource& source, const std::string& name,
                                       int64_t count) {
  const std::vector<int64_t> shape = source.Shape(name);
  const bool is_matrix = shape.size() == 2 && RowCount(shape) * shape.back() == count;
  return is_matrix ? source.Numbers(name, shape) : source.Vector(name, count, 0);
}

Result<std::vector<float>> LoadDecayRates(WeightSource& source, const std::string& prefix,
                                          int64_t heads) {
  const std::string logarithms = prefix + "A_log";
  const bool has_rates = !source.Has(logarithms) && source.Has(prefix + "A");
  KVASIR_TRY(std::vector<float> rates,
             LoadNumbers(source, has_rates ? prefix + "A" : logarithms, heads));
  for (float& rate : rates) rate = has_rates ? -rate : scalar::Exp(rate);
  return rates;
}

}  // namespace kvasir
