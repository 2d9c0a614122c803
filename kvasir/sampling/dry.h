// Dry: "don't repeat yourself", a penalty on tokens that would continue a repetition (p-e-w,
// text-generation-webui pull request 5677; the matching is llama.cpp's).
// Deliberately searches the history anew for every token: linear, and nothing to roll back.
#ifndef KVASIR_SAMPLING_DRY_H_
#define KVASIR_SAMPLING_DRY_H_

#include <cstddef>
#include <vector>

#include "kvasir/sampling/candidate_pool.h"
#include "kvasir/sampling/sampling_options.h"
#include "kvasir/sampling/token_history.h"

namespace kvasir {

// THREADS: one caller at a time.
class Dry {
 public:
  // Each token that would continue a repetition of n >= allowed_length tokens loses
  // multiplier * base^(n - allowed_length), n being the longest such.
  void Apply(const DryOptions& options, const TokenHistory& history, CandidatePool& pool);

 private:
  struct Repetition {
    Token next;
    size_t length;
  };

  // Fills repetitions_: one entry per token, for lengths of at least `least`, at most `most`.
  void Find(size_t least, size_t most);

  std::vector<Token> reversed_;  // the window, newest token first
  std::vector<size_t> matches_;  // the Z function of reversed_
  std::vector<Repetition> repetitions_;
};

}  // namespace kvasir

#endif  // KVASIR_SAMPLING_DRY_H_
