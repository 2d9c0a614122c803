// The whole chain in the plainest way: maps, full sorts, the C library's functions.
// Deliberately slow, and honest about decisions that rounding could turn either way: `margin`.
#ifndef KVASIR_SAMPLING_REFERENCE_SAMPLER_TEST_UTIL_H_
#define KVASIR_SAMPLING_REFERENCE_SAMPLER_TEST_UTIL_H_

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <vector>

#include "kvasir/base/rng.h"
#include "kvasir/sampling/sampling_options.h"
#include "kvasir/sampling/token_history.h"

namespace kvasir {

class ReferenceSampler {
 public:
  struct Input {
    std::vector<float> logits;
    SamplingOptions options;
    Position position = 0;
    TokenHistory history = {};
    std::set<Token> breakers = {};  // single tokens
    double mu = 0.0;                // mirostat's bound
  };

  // Runs the chain. Result: probability by token.
  std::map<Token, double> Run(const Input& input) {
    input_ = &input;
    items_.clear();
    margin = 1.0;
    for (size_t i = 0; i < input.logits.size(); ++i) {
      double logit = input.logits[i];
      for (const TokenBias& entry : input.options.logit_bias) {
        if (entry.token == static_cast<Token>(i)) logit += entry.bias;
      }
      if (logit > -std::numeric_limits<double>::infinity()) {
        items_.push_back({static_cast<Token>(i), logit, 0.0});
      }
    }
    for (const SamplerStage stage : input.options.stages) RunStage(stage);
    if (input.options.mirostat.version != 0 && !input.options.is_greedy()) RunMirostat();
    if (input.options.is_greedy()) KeepLikeliest(1);
    Renormalize();
    std::map<Token, double> result;
    for (const Item& item : items_) result[item.token] = item.p;
    return result;
  }

  // How far, relatively, the closest decision was from turning out otherwise.
  double margin = 1.0;

 private:
  struct Item {
    Token token;
    double logit;
    double p;
  };

  void Decide(double distance) { margin = std::min(margin, std::fabs(distance)); }

  void Renormalize() {
    double largest = -1e300, sum = 0.0;
    for (const Item& item : items_) largest = std::max(largest, item.logit);
    for (Item& item : items_) sum += item.p = std::exp(item.logit - largest);
    for (Item& item : items_) item.p /= sum;
  }

  template <typename Key>
  void Sort(const Key& key) {
    std::stable_sort(items_.begin(), items_.end(),
                     [](const Item& a, const Item& b) { return a.token < b.token; });
    std::stable_sort(items_.begin(), items_.end(),
                     [&](const Item& a, const Item& b) { return key(a) < key(b); });
  }

  template <typename Key>
  void KeepFirst(size_t count, const Key& key) {
    if (count >= items_.size()) return;
    // Equal logits are ordered by id; nearly equal ones by rounding.
    if (items_[count - 1].logit != items_[count].logit) {
      Decide(key(items_[count]) - key(items_[count - 1]));
    }
    items_.resize(count);
  }

  void KeepLikeliest(size_t count) {
    const auto key = [](const Item& item) { return -item.logit; };
    Sort(key);
    KeepFirst(count, key);
  }

  // The shortest head, by key, with a mass of at least `mass`.
  template <typename Key>
  void KeepMass(double mass, const Key& key) {
    Sort(key);
    double sum = 0.0;
    size_t count = 0;
    while (count < items_.size() && sum < mass) {
      sum += items_[count++].p;
      Decide(sum - mass);
    }
    KeepFirst(count, key);
  }

  template <typename Value>
  void KeepAtLeast(double least, const Value& value) {
    for (const Item& item : items_) Decide(value(item) / least - 1.0);
    std::erase_if(items_, [&](const Item& item) { return value(item) < least; });
  }

  void RunStage(SamplerStage stage) {
    const SamplingOptions& options = input_->options;
    if (stage == SamplerStage::kPenalties) return RunPenalties();
    if (stage == SamplerStage::kDry) return RunDry();
    if (options.is_greedy()) return;
    if (stage == SamplerStage::kTemperature) return RunTemperature();
    if (options.mirostat.version != 0) return;
    Renormalize();
    const auto by_logit = [](const Item& item) { return -item.logit; };
    if (stage == SamplerStage::kTopNSigma && options.top_n_sigma > 0) RunTopNSigma();
    if (stage == SamplerStage::kTopK && options.top_k > 0) {
      KeepLikeliest(static_cast<size_t>(options.top_k));
    }
    if (stage == SamplerStage::kTypicalP && options.typical_p < 1) {
      double entropy = 0.0;
      for (const Item& item : items_) entropy -= item.p > 0 ? item.p * std::log(item.p) : 0.0;
      KeepMass(options.typical_p,
               [=](const Item& item) { return std::fabs(-std::log(item.p) - entropy); });
    }
    if (stage == SamplerStage::kTopP && options.top_p < 1) KeepMass(options.top_p, by_logit);
    if (stage == SamplerStage::kMinP && options.min_p > 0) {
      double largest = 0.0;
      for (const Item& item : items_) largest = std::max(largest, item.p);
      // The likeliest itself is no decision.
      for (Item& item : items_) item.p = item.p == largest ? largest * 2 : item.p;
      KeepAtLeast(options.min_p * largest, [](const Item& item) { return item.p; });
    }
    if (stage == SamplerStage::kXtc && options.xtc.probability > 0) RunXtc();
  }

  void RunTopNSigma() {
    double largest = -1e300, sum = 0.0, squares = 0.0;
    for (const Item& item : items_) largest = std::max(largest, item.logit);
    for (const Item& item : items_) sum += item.logit;
    const double mean = sum / static_cast<double>(items_.size());
    for (const Item& item : items_) squares += (item.logit - mean) * (item.logit - mean);
    const double sigma = std::sqrt(squares / static_cast<double>(items_.size()));
    const double cutoff = largest - input_->options.top_n_sigma * sigma;
    for (const Item& item : items_) {
      if (item.logit != largest) Decide(item.logit - cutoff);
    }
    std::erase_if(items_, [&](const Item& i) { return i.logit < cutoff && i.logit != largest; });
  }

  void RunTemperature() {
    double temperature = input_->options.temperature;
    const DynamicTemperatureOptions& dynamic = input_->options.dynamic_temperature;
    if (dynamic.range > 0) {
      Renormalize();
      double entropy = 0.0;
      for (const Item& item : items_) entropy -= item.p > 0 ? item.p * std::log(item.p) : 0.0;
      const double most = std::log(static_cast<double>(items_.size()));
      const double share = items_.size() > 1 ? std::clamp(entropy / most, 0.0, 1.0) : 0.0;
      const double low = std::max(0.0, temperature - dynamic.range);
      temperature = low + (temperature + dynamic.range - low) * std::pow(share, dynamic.exponent);
      // Everything moves fast near 0.
      Decide(temperature);
      if (temperature == 0.0) return KeepLikeliest(1);
    }
    for (Item& item : items_) item.logit /= temperature;
  }

  void RunXtc() {
    const XtcOptions& xtc = input_->options.xtc;
    const double coin =
        UniformDouble(input_->options.seed, static_cast<uint64_t>(input_->position), 1);
    if (!(coin < xtc.probability)) return;
    KeepLikeliest(items_.size());
    size_t top = 0;
    for (const Item& item : items_) {
      Decide(item.p / xtc.threshold - 1.0);
      top += item.p >= xtc.threshold ? 1 : 0;
    }
    if (top < 2) return;
    if (items_[top - 1].logit != items_[top - 2].logit) {
      Decide(items_[top - 1].logit - items_[top - 2].logit);
    }
    items_.erase(items_.begin(), items_.begin() + static_cast<ptrdiff_t>(top) - 1);
  }

  std::vector<Token> Window(int64_t tokens, bool with_prompt) const {
    std::vector<Token> all(input_->history.prompt.begin(), input_->history.prompt.end());
    const size_t prompt = all.size();
    all.insert(all.end(), input_->history.output.begin(), input_->history.output.end());
    all.insert(all.end(), input_->history.drafts.begin(), input_->history.drafts.end());
    size_t first = 0;
    if (tokens >= 0 && static_cast<size_t>(tokens) < all.size()) {
      first = all.size() - static_cast<size_t>(tokens);
    }
    if (!with_prompt) first = std::max(first, prompt);
    return {all.begin() + static_cast<ptrdiff_t>(first), all.end()};
  }

  void RunPenalties() {
    const SamplingOptions& options = input_->options;
    const std::vector<Token> all = Window(options.repeat_last_n, true);
    const std::vector<Token> output = Window(options.repeat_last_n, false);
    for (Item& item : items_) {
      const auto count = static_cast<double>(std::count(output.begin(), output.end(), item.token));
      if (std::count(all.begin(), all.end(), item.token) > 0) {
        item.logit *= item.logit > 0 ? 1 / options.repetition_penalty : options.repetition_penalty;
      }
      item.logit -= options.frequency_penalty * count;
      if (count > 0) item.logit -= options.presence_penalty;
    }
  }

  void RunDry() {
    const DryOptions& dry = input_->options.dry;
    if (dry.multiplier == 0) return;
    const std::vector<Token> tokens = Window(dry.last_n, true);
    const auto& breakers = input_->breakers;
    for (Item& item : items_) {
      if (breakers.contains(item.token)) continue;
      int64_t longest = 0;
      for (size_t at = 0; at < tokens.size(); ++at) {
        if (tokens[at] != item.token) continue;
        int64_t length = 0;
        for (size_t back = 1; back <= at; ++back) {
          const Token last = tokens[tokens.size() - back];
          if (tokens[at - back] != last || breakers.contains(last)) break;
          ++length;
        }
        longest = std::max(longest, length);
      }
      if (longest < dry.allowed_length) continue;
      item.logit -=
          dry.multiplier * std::pow(dry.base, static_cast<double>(longest - dry.allowed_length));
    }
  }

  void RunMirostat() {
    Renormalize();
    KeepLikeliest(items_.size());
    const double mu = input_->mu;
    if (input_->options.mirostat.version == 2) {
      for (const Item& item : items_) Decide((-std::log2(item.p) - mu) / mu);
      const Item likeliest = items_[0];
      std::erase_if(items_, [&](const Item& item) { return -std::log2(item.p) > mu; });
      if (items_.empty()) items_.push_back(likeliest);
      return;
    }
    double products = 0.0, squares = 0.0;
    for (size_t i = 0; i + 1 < std::min<size_t>(100, items_.size()); ++i) {
      const double t = std::log((i + 2.0) / (i + 1.0));
      products += t * (items_[i].logit - items_[i + 1].logit);
      squares += t * t;
    }
    if (squares == 0.0) return KeepLikeliest(1);
    const double s = products / squares, epsilon = s - 1.0;
    const auto size = static_cast<double>(input_->logits.size());
    const double k = std::pow(epsilon * std::exp2(mu) / (1.0 - std::pow(size, -epsilon)), 1.0 / s);
    if (std::isnan(k)) return Decide(0.0);
    if (k > size) return;
    Decide(k / std::round(k) - 1.0);
    KeepLikeliest(std::max<size_t>(1, static_cast<size_t>(k)));
  }

  const Input* input_ = nullptr;
  std::vector<Item> items_;
};

}  // namespace kvasir

#endif  // KVASIR_SAMPLING_REFERENCE_SAMPLER_TEST_UTIL_H_
