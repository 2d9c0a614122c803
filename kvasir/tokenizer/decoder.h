// Decoder: token texts back to text, all at once or one token at a time.
// Deliberately not aware of ids, special tokens or half characters; see streaming_detokenizer.h.
#ifndef KVASIR_TOKENIZER_DECODER_H_
#define KVASIR_TOKENIZER_DECODER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/tokenizer/pattern.h"

namespace kvasir {

// Immutable and thread-safe.
class Decoder {
 public:
  // Reads the member "decoder" of tokenizer.json; null joins the tokens with spaces.
  // ERRORS: kCorrupt, kUnsupported, naming the field or type.
  static Result<Decoder> FromJson(const Json& json);

  // Invalid UTF-8 becomes U+FFFD: one per maximal subpart in byte-level tokens, and one per token
  // in a run of byte tokens that is not valid as a whole.
  std::string Decode(std::vector<std::string> tokens) const;

  // How the text of many tokens is made of the texts of single tokens.
  struct StreamRules {
    // False: only Decode() of all tokens gives their text.
    bool can_stream = true;
    // The pieces are bytes whose characters may be cut anywhere (byte-level).
    bool has_raw_bytes = false;
    // A piece depends on whether another token follows.
    bool needs_lookahead = false;
    // So many leading characters equal to `strip_character` are cut off the whole text.
    int64_t strip_characters = 0;
    std::string strip_character;
  };
  const StreamRules& stream_rules() const { return rules_; }

  enum class Place { kFirst, kMiddle, kLast, kOnly };
  struct TokenPiece {
    std::string bytes;
    // One byte of a character spelled by byte tokens (SentencePiece's byte fallback).
    bool is_byte_token = false;
  };
  // What one token adds to the text. Meaningful if can_stream; otherwise an approximation.
  TokenPiece PieceOf(std::string_view token, Place place) const;

 private:
  enum class Kind {
    kJoinWithSpaces,
    kByteLevel,
    kMetaspace,
    kByteFallback,
    kFuse,
    kStrip,
    kReplace,
    kSuffixToSpace
  };
  struct Step {
    Kind kind = Kind::kFuse;
    std::string text;  // mark, stripped character, replacement or suffix
    int64_t start = 0;
    int64_t stop = 0;
    bool drops_first_mark = false;
    std::optional<Pattern> pattern;
  };

  Decoder() = default;
  Status Read(const Json& json);
  static Result<Step> ReadStep(const Json& json, std::string_view type);
  void DeriveRules();

  void ApplyStep(const Step& step, size_t limit_bytes, std::vector<std::string>* tokens) const;
  static std::string ApplyToToken(const Step& step, std::string token, Place place,
                                  size_t limit_bytes);

  std::vector<Step> steps_;
  // The steps that look at single tokens; PieceOf runs these.
  size_t token_steps_ = 0;
  StreamRules rules_;
};

}  // namespace kvasir

#endif  // KVASIR_TOKENIZER_DECODER_H_
