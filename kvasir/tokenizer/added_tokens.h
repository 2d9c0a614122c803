// AddedTokens: the tokens that are found in the text itself, before any word is cut.
// Deliberately not a second vocabulary for the model: BPE never produces them by merging.
#ifndef KVASIR_TOKENIZER_ADDED_TOKENS_H_
#define KVASIR_TOKENIZER_ADDED_TOKENS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/base/token.h"
#include "kvasir/tokenizer/byte_trie.h"
#include "kvasir/tokenizer/normalizer.h"
#include "kvasir/tokenizer/traced_text.h"
#include "kvasir/tokenizer/vocabulary.h"

namespace kvasir {

struct AddedToken {
  Token id = 0;
  std::string content;      // as written in the file
  std::string normalized;   // what is searched for in normalized text; `content` if not normalized
  bool is_special = false;  // dropped by decoding with skip_special
  bool is_single_word = false;  // matches between non-word characters only
  bool strips_left = false;     // swallows the white space before it
  bool strips_right = false;    // swallows the white space after it
  bool is_normalized = false;   // searched for after normalization
  // Looks like markup: special, or written <...> or [...]. Found in trusted text only.
  bool is_marker = false;
};

// Immutable once read, then thread-safe.
class AddedTokens {
 public:
  // Reads the member "added_tokens" of tokenizer.json (null or absent: none). A token whose content
  // is in `vocabulary` has the id given there. ERRORS: kCorrupt, kUnsupported, naming the entry.
  static Result<AddedTokens> FromJson(const Json* json, const Vocabulary& vocabulary,
                                      const Normalizer& normalizer);

  // Which tokens are searched for: those that match before, or after normalization.
  enum class Stage { kRaw, kNormalized };
  enum class Special { kParse, kAsText };

  struct Part {
    size_t begin = 0;
    size_t end = 0;
    const AddedToken* token = nullptr;  // nullptr: text between tokens
  };
  // Cuts `text` at the leftmost, then longest matches. Parts are in order and may overlap where one
  // token strips white space that another one matches, as in the reference.
  std::vector<Part> Cut(const TracedText& text, Stage stage, Special special) const;

  const AddedToken* Find(Token id) const;
  const AddedToken* Find(std::string_view content) const;
  // Those that are found in trusted text only.
  std::vector<Token> Markers() const;
  // Largest id + 1; 0 when there are none.
  int64_t id_end() const { return id_end_; }

 private:
  Status Add(AddedToken token);
  const AddedToken* LongestMatch(const TracedText& text, size_t position, Stage stage,
                                 Special special) const;

  std::vector<AddedToken> tokens_;
  std::unordered_map<Token, size_t> by_id_;
  std::unordered_map<std::string, size_t> by_content_;
  ByteTrie raw_;
  ByteTrie normalized_;
  int64_t id_end_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_TOKENIZER_ADDED_TOKENS_H_
