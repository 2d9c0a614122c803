// HiddenPool: the hidden states of a text's tokens become one vector, its embedding.
// Deliberately without a model: it gets states, in any chunks, in the order of their positions.
#ifndef KVASIR_ENGINE_HIDDEN_POOL_H_
#define KVASIR_ENGINE_HIDDEN_POOL_H_

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "kvasir/base/token.h"
#include "kvasir/tensor/float_rows.h"

namespace kvasir {

enum class Pooling {
  kMean,  // of all tokens: what serves models that were not trained for embeddings
  kLast,  // of the last token, which has seen all others: what embedding models of this kind use
};
// "mean" or "last"; none for another name.
std::optional<Pooling> PoolingFromName(std::string_view name);

class HiddenPool {
 public:
  explicit HiddenPool(Pooling pooling) : pooling_(pooling) {}

  // How many of the next `tokens` positions' states are wanted, counted from their end. `is_last`:
  // the text ends with them.
  int64_t WantedRows(int64_t tokens, bool is_last) const {
    return pooling_ == Pooling::kMean ? tokens : is_last ? 1 : 0;
  }
  // The states of positions [begin, begin + states.rows). What was added before (a preempted text
  // is read again) is passed over, so the sum is made in one order whatever the chunks.
  void Add(Position begin, ConstFloatRows states);
  // Where the next new state stands.
  Position position() const { return position_; }

  // Of length 1, unless all states are 0. REQUIRES: a state was added.
  std::vector<float> Embedding() const;

 private:
  const Pooling pooling_;
  Position position_ = 0;
  std::vector<double> sums_;  // [hidden_size]; for kLast the state itself
};

// Divides by the length (square root of the sum of squares), which is taken in double precision
// from the first component to the last. A vector of zeros stays as it is.
void NormalizeLength(std::vector<float>* vector);

}  // namespace kvasir

#endif  // KVASIR_ENGINE_HIDDEN_POOL_H_
