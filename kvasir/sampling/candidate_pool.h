// CandidatePool: the tokens that may still be chosen, with their logits and integer weights; each
// filter is one method. Deliberately knows no options, no history and no random numbers.
#ifndef KVASIR_SAMPLING_CANDIDATE_POOL_H_
#define KVASIR_SAMPLING_CANDIDATE_POOL_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvasir/base/token.h"

namespace kvasir {

struct Candidate {
  float logit;
  Token token;
  uint64_t weight;  // exp((logit - largest logit) / temperature) in units of 2^-40
};

// The likeliest token; ties go to the lowest id, NaN counts as -infinity. REQUIRES: !logits.empty()
Token Argmax(std::span<const float> logits);

// Order everywhere: the likelier first, of equal logits the lower id. After Reset the pool is all
// logits and copies nothing; it becomes a list (ascending by id) when the first filter needs one.
// No filter leaves it empty. THREADS: one caller at a time.
class CandidatePool {
 public:
  // Weights of this many tokens fit 63 bits.
  static constexpr size_t kMaxTokens = size_t{1} << 22;
  // e^-29 is below 2^-41 and rounds to a weight of zero.
  static constexpr double kNegligible = 29.0;

  // Starts over, at temperature 1. Borrows `logits` until the next Reset.
  // REQUIRES: 1 to kMaxTokens logits.
  void Reset(std::span<const float> logits);

  // All logits, for writing. REQUIRES: Reset was the last call.
  std::span<float> OwnLogits();
  // Makes the token's logit logit * factor, or logit / factor if it is positive, minus `loss` times
  // the temperature: at whatever temperature, the loss is one of the scaled logit. Nothing happens
  // to tokens that are unknown or gone, nor to infinities and NaN. Finite stays finite.
  void Penalize(Token token, double factor, double loss);
  // Adds to the logit; -infinity bans the token.
  void AddBias(Token token, float bias);

  // Of what is left. -infinity when that is nothing; NaN never counts.
  float max_logit();
  // Lowest id of those with the largest logit.
  Token Likeliest();

  // All methods below REQUIRE: max_logit() is finite; those after MakeList: the pool is a list.
  // Exactly k, or all. REQUIRES: k > 0.
  void KeepTopK(size_t k);
  // Logits within `n` standard deviations of the largest (population, finite logits only).
  void KeepTopNSigma(double n);
  // Makes the pool a list of the logits down to the largest minus `reach`; no-op if it is one.
  void MakeList(double reach);

  void KeepTopP(double top_p);
  void KeepTypical(double typical_p);
  void KeepMinP(double min_p);
  // Tokens whose surprise is at most `bits`, or the likeliest.
  void KeepSurpriseUpTo(double bits);
  // All but the least likely of those with at least this probability.
  void ExcludeTopChoices(double threshold);
  // REQUIRES: temperature > 0.
  void SetTemperature(double temperature);
  double temperature() const { return temperature_; }
  size_t size() const { return is_list_ ? candidates_.size() : logits_.size(); }

  // Of the distribution, in nats.
  double Entropy();
  // Sum of all weights.
  uint64_t TotalWeight();
  // 0 when the token is gone.
  uint64_t WeightOf(Token token);
  // The `count` largest logits (or all), likeliest first, divided by the temperature.
  std::vector<double> LargestLogits(size_t count);
  // Ascending by id, with their weights.
  std::span<const Candidate> Weighted();
  // The token at `uniform` (in [0, 1)) of the mass, walking by id.
  Token Draw(double uniform);

 private:
  // What KeepHead sorts: a smaller key is kept first.
  struct Ranked {
    double key;
    Token token;
    uint64_t weight;
  };

  static bool Likelier(const Candidate& a, const Candidate& b);
  static bool Before(const Ranked& a, const Ranked& b);

  float* Find(Token token);
  void SelectTopK(size_t k);
  void SelectAbove(double cutoff);
  void EnsureWeights();
  void AfterCut();
  // Sum of weight * distance below the largest logit, over the total, at the temperature.
  double MeanDistance();
  template <typename Key>
  void KeepHead(uint64_t wanted, double first_key, double bins_per_key, const Key& key);
  Ranked LastKept(uint64_t wanted);

  std::span<const float> logits_;
  std::vector<float> own_;  // logits_ once one of them was changed
  std::vector<Candidate> candidates_;
  std::vector<Ranked> ranked_;
  double temperature_ = 1.0;
  float max_logit_ = 0.0f;
  uint64_t total_ = 0;  // of all weights
  bool is_list_ = false;
  bool is_max_known_ = false;
  bool has_weights_ = false;
};

}  // namespace kvasir

#endif  // KVASIR_SAMPLING_CANDIDATE_POOL_H_
