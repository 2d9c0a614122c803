#include "kvasir/sampling/mirostat.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kvasir/sampling/exact_math.h"

namespace kvasir {
namespace {

constexpr double kLn2 = 0x1.62e42fefa39efp-1;
constexpr size_t kEstimateFrom = 100;  // the paper's m

// Least squares of ln(p_i / p_{i+1}) on ln((i + 2) / (i + 1)): Zipf's exponent.
double ZipfExponent(const std::vector<double>& logits) {
  double products = 0.0;
  double squares = 0.0;
  for (size_t i = 0; i + 1 < logits.size(); ++i) {
    const double t = ExactLog(static_cast<double>(i + 2) / static_cast<double>(i + 1));
    products += t * (logits[i] - logits[i + 1]);
    squares += t * t;
  }
  return squares > 0.0 ? products / squares : 0.0;
}

// ln(epsilon / (1 - vocabulary^-epsilon)), which is finite on both sides of 0.
double LogRatio(double epsilon, double log_vocabulary) {
  const double exponent = std::fabs(epsilon) * log_vocabulary;
  // The limit. Relative to it the ratio is 1 + exponent / 2 + ...
  if (exponent < 1e-9) return -ExactLog(log_vocabulary);
  const double log_head = ExactLog(std::fabs(epsilon)) - ExactLog(1.0 - ExactExp(-exponent));
  return epsilon > 0.0 ? log_head : log_head - exponent;
}

// ((epsilon * 2^mu) / (1 - vocabulary^-epsilon))^(1 / s), floored, within 1 to vocabulary.
size_t MirostatK(double s, double mu, size_t vocabulary) {
  if (vocabulary < 2) return 1;
  const double log_vocabulary = ExactLog(static_cast<double>(vocabulary));
  const double log_power = LogRatio(s - 1.0, log_vocabulary) + mu * kLn2;
  if (log_power <= 0.0) return 1;
  // Also for s = 0, the uniform distribution.
  if (log_power >= s * log_vocabulary) return vocabulary;
  return std::max<size_t>(1, static_cast<size_t>(1.0 / ExactExp(-log_power / s)));
}

}  // namespace

void MirostatCut(const MirostatOptions& options, double mu, size_t vocabulary,
                 CandidatePool& pool) {
  if (options.version == 2) return pool.KeepSurpriseUpTo(mu);
  const double s = ZipfExponent(pool.LargestLogits(kEstimateFrom));
  // Infinite only near temperature 0, where one token has all the mass.
  pool.KeepTopK(std::isfinite(s) ? MirostatK(s, mu, vocabulary) : 1);
}

double MirostatUpdate(const MirostatOptions& options, double mu, double surprise) {
  return mu - options.eta * (surprise - options.tau);
}

}  // namespace kvasir
