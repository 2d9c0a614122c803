// GrammarCache: grammars that requests have named, compiled for the model's vocabulary, each once.
// Deliberately without requests: what a grammar is made of is the caller's to say.
#ifndef KVASIR_SERVER_GRAMMAR_CACHE_H_
#define KVASIR_SERVER_GRAMMAR_CACHE_H_

#include <cstddef>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/base/token.h"
#include "kvasir/grammar/grammar.h"
#include "kvasir/grammar/grammar_masks.h"
#include "kvasir/tokenizer/tokenizer.h"

namespace kvasir {

struct GrammarCacheOptions {
  // The least recently used one goes first. A request keeps its own as long as it runs.
  size_t max_grammars = 16;
  // What the masks of one grammar may take: 800 masks of 151,936 tokens.
  size_t masks_bytes = size_t{16} << 20;
};

// THREADS: any. What it returns is for one engine's thread.
class GrammarCache {
 public:
  using Build = std::function<Result<std::shared_ptr<const Grammar>>()>;

  // The tokenizer must outlive it. The vocabulary is read when the first grammar comes.
  // `markers`: special tokens that a grammar may ask for by their text.
  GrammarCache(const Tokenizer* tokenizer, std::vector<Token> end_tokens,
               std::vector<Token> markers = {}, GrammarCacheOptions options = {})
      : tokenizer_(tokenizer),
        end_tokens_(std::move(end_tokens)),
        markers_(std::move(markers)),
        options_(options) {}

  // The grammar known by this key, or else what `build` makes. Errors are not remembered.
  // ERRORS: those of `build`.
  Result<std::shared_ptr<GrammarMasks>> Get(const std::string& key, const Build& build);

  size_t size() const;

 private:
  struct Entry {
    std::string key;
    std::shared_ptr<GrammarMasks> masks;
  };

  std::shared_ptr<GrammarMasks> Find(const std::string& key);

  const Tokenizer* const tokenizer_;
  const std::vector<Token> end_tokens_;
  const std::vector<Token> markers_;
  const GrammarCacheOptions options_;
  mutable std::mutex mutex_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  std::list<Entry> entries_;  // the most recently used first
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_GRAMMAR_CACHE_H_
