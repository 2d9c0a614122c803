// StepCost: how long a forward pass of so many rows takes here and now, learnt from those that ran.
// Deliberately a table over rows: contexts, codecs and other users of the machine are in its
// figures, because they move slowly.
#ifndef KVASIR_SPECULATIVE_STEP_COST_H_
#define KVASIR_SPECULATIVE_STEP_COST_H_

#include <cstdint>
#include <map>

namespace kvasir {

class StepCost {
 public:
  // A step of `rows` rows took `ms`. One step counts for at most a quarter more or less than what
  // was known: stalls of the machine are not costs.
  void Record(int64_t rows, double ms);
  // Interpolated between the numbers of rows that were seen; beyond them as their nearest, so that
  // what was never tried looks cheap enough to try. 0 if nothing was seen.
  double Ms(int64_t rows) const;
  bool empty() const { return seen_.empty(); }

 private:
  static int64_t Bucket(int64_t rows);

  std::map<int64_t, double> seen_;  // by rows, above 16 in steps of an eighth
};

}  // namespace kvasir

#endif  // KVASIR_SPECULATIVE_STEP_COST_H_
