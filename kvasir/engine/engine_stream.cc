#include "kvasir/engine/engine_stream.h"

#include <utility>

namespace kvasir {

EngineStream::EngineStream(const EngineRequest* request, const AnswerVocabulary* vocabulary,
                           Options options)
    : AnswerBuilder(request, vocabulary, std::move(options)) {
  if (request->pooling) pool_.emplace(*request->pooling);
}

int64_t EngineStream::WantedStates(int64_t tokens, bool is_last) const {
  return pool_ ? pool_->WantedRows(tokens, is_last) : 0;
}

void EngineStream::AddStates(Position begin, ConstFloatRows states) {
  pool_->Add(begin, states);
  if (begin + states.rows == known_tokens()) result().embedding = pool_->Embedding();
}

void EngineStream::ReleaseCache() {
  if (sequence) result().stats.kv_bytes = sequence->nbytes();
  sequence.reset();
  swapped.reset();
  fetch.reset();
  search.reset();
}

}  // namespace kvasir
