// BpeModel: words to ids by byte-pair encoding, with SentencePiece's byte fallback.
// Deliberately without dropout (a training aid) and without a cache shared between threads.
// Source: Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units", section
// 3.2, with ranks as in GPT-2.
#ifndef KVASIR_TOKENIZER_BPE_MODEL_H_
#define KVASIR_TOKENIZER_BPE_MODEL_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/base/token.h"
#include "kvasir/tokenizer/merge_table.h"
#include "kvasir/tokenizer/vocabulary.h"

namespace kvasir {

// Immutable and thread-safe.
class BpeModel {
 public:
  // Reads the member "model" of tokenizer.json. ERRORS: kCorrupt, kUnsupported, naming the field,
  // vocabulary entry or merge.
  static Result<BpeModel> FromJson(const Json& json);

  // The working memory of one encoding; reuse it from word to word.
  class Scratch {
    friend class BpeModel;
    struct Symbol {
      Token id;
      int32_t previous;  // index, -1 at the beginning
      int32_t next;      // index, -1 at the end
      bool alive;
    };
    // A possible merge of the symbol at `position` with its right neighbour.
    struct Candidate {
      uint64_t order;  // rank << 32 | position: lowest first
      Token result;
    };
    std::vector<Symbol> symbols_;
    std::vector<Candidate> heap_;
  };

  // Words are never these as a whole, which ignore_merges looks up: text that is not trusted would
  // become them.
  void KeepFromWords(const std::vector<Token>& tokens);

  // Appends the ids of one word, in O(n log n) for n characters. A character that is neither in the
  // vocabulary nor spelled by byte tokens becomes unk_token, or nothing if there is none.
  // REQUIRES: valid UTF-8 of less than 2 GiB.
  void Encode(std::string_view word, Scratch* scratch, std::vector<Token>* ids) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  BpeModel() = default;

  Status ReadFlags(const Json& json);
  Status ReadMerges(const Json& merges);
  Status AddMerge(std::string_view left, std::string_view right, uint32_t rank);
  void IndexCharacters();

  void SplitIntoSymbols(std::string_view word, Scratch* scratch) const;
  std::optional<Token> FindCharacter(std::string_view character) const;
  // Appends the byte tokens that spell `text`; false, and nothing, unless all exist.
  bool AppendBytes(std::string_view text, Scratch* scratch) const;
  void MergeSymbols(Scratch* scratch) const;
  void PushCandidate(int32_t position, Scratch* scratch) const;
  static void AppendSymbol(Token id, Scratch* scratch);

  Vocabulary vocabulary_;
  MergeTable merges_;
  std::string subword_prefix_;  // before every character of a word but the first
  std::string word_suffix_;     // after the last
  std::optional<Token> unknown_;
  bool fuse_unknown_ = false;
  bool byte_fallback_ = false;
  bool ignore_merges_ = false;
  std::vector<Token> never_words_;  // sorted
  // Ids of <0x00> to <0xFF>, -1 where missing.
  std::array<Token, 256> byte_tokens_{};
  // Ids of the characters below this, -1 where missing: most look-ups, and all byte-level ones.
  static constexpr char32_t kIndexedCharacters = 0x180;
  std::array<Token, kIndexedCharacters> characters_{};
};

}  // namespace kvasir

#endif  // KVASIR_TOKENIZER_BPE_MODEL_H_
