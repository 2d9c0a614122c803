// Model: an immutable decoder and the step that runs it.
// Deliberately without sampling, tokenizers or scheduling: tokens in, logits out, caches advanced.
#ifndef KVASIR_MODEL_MODEL_H_
#define KVASIR_MODEL_MODEL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/base/token.h"
#include "kvasir/kv/kv_sequence.h"
#include "kvasir/kv/kv_spec.h"
#include "kvasir/model/workspace.h"
#include "kvasir/tensor/float_rows.h"

namespace kvasir {

// The new tokens of one sequence. Decode is a run of 1, a prefill chunk a run of n with 0 or 1
// logits rows, verifying k drafts a run of k + 1 with k + 1 logits rows. Of tokens that need
// neither logits nor states the last layers compute no more than the cache keeps.
struct SequenceRun {
  KvSequence* sequence = nullptr;
  std::span<const Token> tokens;  // at positions [sequence->position(), + tokens.size())
  int64_t logits_rows = 0;        // how many of the last tokens need logits
  int64_t hidden_rows = 0;        // how many of the last tokens need their hidden state
};

class Model {
 public:
  virtual ~Model() = default;

  virtual int64_t vocab_size() const = 0;
  // Floats of a hidden state.
  virtual int64_t hidden_size() const = 0;
  // Largest position + 1 the model was made for.
  virtual int64_t context_tokens() const = 0;
  virtual size_t weight_bytes() const = 0;
  virtual int64_t parameters() const = 0;
  // One spec per decoder layer, every row stored in `codec`; KvPolicy::Apply makes others of it.
  virtual KvCacheSpec CacheSpec(KvCodec codec) const = 0;
  // A checksum of what changes bits from some position on alone; 0: nothing does.
  virtual uint64_t LaterPositionsSum() const { return 0; }
  // What the ranking of cache rows needs to know of attention: query heads per layer.
  virtual int query_heads() const = 0;

  // Embeddings as they enter the first layer, scaled, [tokens, hidden_size].
  // REQUIRES: 0 <= token < vocab_size().
  virtual void EmbedTokens(std::span<const Token> tokens, FloatRows out) const = 0;
  // Logits of hidden states after the final norm (Forward's own, or what a drafting layer makes of
  // them): [rows, hidden_size] to [rows, vocab_size], or to the first of those logits, a multiple
  // of kPanelOutputs.
  virtual void Logits(ConstFloatRows states, FloatRows out) const = 0;

  // Upper bound of what a workspace and the backend take for steps of so many tokens, `logits_rows`
  // of which need logits.
  virtual size_t ScratchBytes(int64_t rows, int64_t logits_rows) const = 0;

  // What the backend takes of that now.
  virtual size_t backend_bytes() const = 0;

  // Runs one step over all runs together, advances their sequences, and returns logits
  // [sum of logits_rows, vocab_size] in run order; they live in `workspace` until the next step,
  // as do the hidden states after the final norm, workspace.HiddenStates() [sum of hidden_rows,
  // hidden_size].
  // The bits of a row depend on its own sequence only.
  // ERRORS: kInvalidArgument (a token outside the vocabulary, an empty run, a position past the
  // context, a run longer than KvSequence::RunLimit), kResourceExhausted (the pool's budget). No
  // sequence has moved then.
  // THREADS: one call at a time per workspace and backend.
  virtual Result<ConstFloatRows> Forward(std::span<const SequenceRun> runs,
                                         Workspace& workspace) const = 0;
};

// Whether the model's rows fit a cache of this spec: its layers, heads and extents, not how they
// are stored. ERRORS: kInvalidArgument naming the layer.
Status CheckCacheSpec(const KvCacheSpec& spec, const Model& model);

}  // namespace kvasir

#endif  // KVASIR_MODEL_MODEL_H_
