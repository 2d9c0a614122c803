// SamplingOptions: how one request wants its tokens chosen.
// Deliberately a plain value: the same options, seed and logits give the same token everywhere.
// Formulas, order and sources: docs/sampling.md.
#ifndef KVASIR_SAMPLING_SAMPLING_OPTIONS_H_
#define KVASIR_SAMPLING_SAMPLING_OPTIONS_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/base/token.h"
#include "kvasir/sampling/sampler_stage.h"

namespace kvasir {

struct TokenBias {
  Token token = 0;
  float bias = 0.0f;  // added to the logit; -infinity bans the token
};

// Any number of them. Copies share them, as requests with many answers have many copies.
class LogitBias {
 public:
  LogitBias() = default;
  LogitBias(std::vector<TokenBias> biases)  // NOLINT: as a list
      : biases_(std::make_shared<const std::vector<TokenBias>>(std::move(biases))) {}
  LogitBias(std::initializer_list<TokenBias> biases) : LogitBias(std::vector<TokenBias>(biases)) {}

  bool empty() const { return biases_ == nullptr || biases_->empty(); }
  const TokenBias* begin() const { return biases_ == nullptr ? nullptr : biases_->data(); }
  const TokenBias* end() const {
    return biases_ == nullptr ? nullptr : biases_->data() + biases_->size();
  }

 private:
  std::shared_ptr<const std::vector<TokenBias>> biases_;  // null: none
};

// Entropy decides the temperature, between temperature - range and temperature + range.
struct DynamicTemperatureOptions {
  double range = 0.0;     // [0, 100]; 0: off
  double exponent = 1.0;  // (0, 100]
};

// "Exclude top choices": now and then, all but the least likely of the likely tokens go.
struct XtcOptions {
  double probability = 0.0;  // [0, 1] per token; 0: off
  double threshold = 0.1;    // [0, 1]: what counts as likely; above 0.5 nothing ever goes
};

// "Don't repeat yourself": a token that would continue a repetition of length n loses
// multiplier * base^(n - allowed_length).
struct DryOptions {
  double multiplier = 0.0;     // [0, 100]; 0: off
  double base = 1.75;          // [1, 100]
  int64_t allowed_length = 2;  // at least 1: shorter repetitions are free
  int64_t last_n = -1;         // tokens looked at; -1: all, 0: off
  // No repetition reaches across one of these texts. See DryBreakers.
  std::vector<std::string> breakers = {"\n", ":", "\"", "*"};
};

// Holds the surprise of tokens near tau bits (Basu et al., "Mirostat", ICLR 2021).
struct MirostatOptions {
  int64_t version = 0;  // 0: off, 1, 2
  double tau = 5.0;     // [0, 100] bits
  double eta = 0.1;     // [0, 1]: how fast the bound follows
};

struct SamplingOptions {
  double temperature = 0.0;  // >= 0; 0 is greedy, then the filters and the seed mean nothing
  int64_t top_k = 0;         // keep the k likeliest; 0: off
  double top_p = 1.0;        // (0, 1]: keep the smallest head of this mass; 1: off
  double min_p = 0.0;        // [0, 1]: keep what is at least this times the likeliest; 0: off
  uint64_t seed = 0;

  // Each distinct token of the prompt and the output: logit / x if positive, else logit * x. 1: off
  double repetition_penalty = 1.0;  // (0, 100]
  // Subtracted once per occurrence in the output. 0: off
  double frequency_penalty = 0.0;  // [-100, 100]
  // Subtracted if the token occurs in the output. 0: off
  double presence_penalty = 0.0;  // [-100, 100]
  LogitBias logit_bias = {};      // empty: off

  int64_t repeat_last_n = -1;  // tokens that the three penalties look at; -1: all, 0: off
  double typical_p = 1.0;      // (0, 1]: keep the most typical tokens of this mass; 1: off
  double top_n_sigma = 0.0;    // >= 0: keep logits this many deviations below the largest; 0: off
  DynamicTemperatureOptions dynamic_temperature = {};
  XtcOptions xtc = {};
  DryOptions dry = {};
  MirostatOptions mirostat = {};
  // The order of the stages, each at most once; one that is missing is off.
  std::vector<SamplerStage> stages = {DefaultStages().begin(), DefaultStages().end()};

  // ERRORS: kInvalidArgument, naming the field (as llama-server does) and its range.
  Status Validate(int64_t vocab_size) const;

  bool is_greedy() const { return temperature == 0.0; }
  bool has_penalties() const {
    return repeat_last_n != 0 &&
           (repetition_penalty != 1.0 || frequency_penalty != 0.0 || presence_penalty != 0.0);
  }
  bool has_dry() const { return dry.multiplier > 0.0 && dry.last_n != 0; }
};

}  // namespace kvasir

#endif  // KVASIR_SAMPLING_SAMPLING_OPTIONS_H_
