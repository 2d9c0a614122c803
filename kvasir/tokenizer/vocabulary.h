// Vocabulary: the two-way map between token texts and ids, in flat arrays.
// Deliberately not aware of merges or of added tokens.
#ifndef KVASIR_TOKENIZER_VOCABULARY_H_
#define KVASIR_TOKENIZER_VOCABULARY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/base/token.h"

namespace kvasir {

// The largest id accepted among `entries` tokens. Ids index arrays, so one absurd id must not cost
// memory; a million unused ids are more than any published padding.
int64_t MaxTokenId(size_t entries);

// Immutable once read, then thread-safe.
class Vocabulary {
 public:
  Vocabulary() = default;
  // Reads {"text": id, ...}. ERRORS: kCorrupt, naming the entry.
  static Result<Vocabulary> FromJson(const Json& json);

  std::optional<Token> Find(std::string_view text) const;
  // Empty optional for an id that no token has.
  std::optional<std::string_view> Text(Token id) const;
  // Largest id + 1; 0 when empty.
  int64_t id_end() const { return static_cast<int64_t>(spans_.size()); }
  size_t entries() const { return entries_; }

 private:
  struct Span {
    uint32_t begin = 0;
    int32_t size = -1;  // -1: no token
  };
  // Open addressing; a text repeated under two ids keeps its own span here.
  struct Slot {
    uint32_t begin = 0;
    int32_t size = -1;  // -1: free
    Token id = 0;
  };

  void Insert(std::string_view text, Token id);
  std::string_view TextAt(uint32_t begin, int32_t size) const {
    return std::string_view(texts_).substr(begin, static_cast<size_t>(size));
  }

  std::string texts_;  // all texts, one after the other
  std::vector<Span> spans_;
  std::vector<Slot> slots_;  // a power of two, at most half full
  size_t entries_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_TOKENIZER_VOCABULARY_H_
