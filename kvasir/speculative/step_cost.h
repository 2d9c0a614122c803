// StepCost: how long a forward pass of so many rows takes here and now, learnt from those that ran.
// Deliberately without contexts and codecs: what slows all steps down alike, longer contexts or
// other users of the machine, moves one factor that all numbers of rows share.
#ifndef KVASIR_SPECULATIVE_STEP_COST_H_
#define KVASIR_SPECULATIVE_STEP_COST_H_

#include <cstdint>
#include <map>

namespace kvasir {

class StepCost {
 public:
  // A step of `rows` rows took `ms`. One step counts for at most a quarter more or less than what
  // was known: stalls of the machine are not costs. Fewer rows never cost more. Nothing is learnt
  // from one that took no time.
  void Record(int64_t rows, double ms);
  // Interpolated between the numbers of rows that were seen; beyond them as their nearest, so that
  // what was never tried looks cheap enough to try. 0 if nothing was seen.
  double Ms(int64_t rows) const;
  bool empty() const { return seen_.empty(); }

 private:
  static int64_t Bucket(int64_t rows);
  double Share(int64_t rows) const;

  double level_ = 0;  // ms
  std::map<int64_t, double>
      seen_;  // multiples of the level by rows, above 16 in steps of an eighth
};

}  // namespace kvasir

#endif  // KVASIR_SPECULATIVE_STEP_COST_H_
