// Tokenizer: text to ids and back, as a model's tokenizer.json says.
// Deliberately not here: chat templates (kvasir/chat), and special tokens named elsewhere than in
// tokenizer.json. docs/tokenizer.md lists what is supported and where it differs from the
// reference.
#ifndef KVASIR_TOKENIZER_TOKENIZER_H_
#define KVASIR_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/base/text_segment.h"
#include "kvasir/base/token.h"

namespace kvasir {

struct EncodeOptions {
  // Run the post-processor, which adds BOS or EOS where the model wants them. Chat templates write
  // these themselves: false for their output.
  bool add_special = true;
  // False: added tokens with "special": true that are written in the text stay ordinary text.
  bool parse_special = true;
};

struct TokenizerOptions {
  // What every text begins with, unless it does already, where EncodeOptions::add_special: for
  // models that want a BOS which their file does not add. Without effect if the file puts tokens
  // before a text itself, or has no such token. Empty: nothing.
  std::string begin_token;
};

struct DecodeOptions {
  // Drop the added tokens with "special": true.
  bool skip_special = true;
};

// Immutable. THREADS: all methods may run concurrently.
class Tokenizer {
 public:
  // Reads the whole of a tokenizer.json. ERRORS: kCorrupt for wrong types and values, kUnsupported
  // for components this tokenizer does not have; the message names the field.
  // REQUIRES: strings of valid UTF-8, as Json::Parse delivers them.
  static Result<std::unique_ptr<const Tokenizer>> FromJson(const Json& tokenizer_json,
                                                           const TokenizerOptions& options = {});
  // ERRORS: also kIo, kNotFound; the message begins with the path.
  static Result<std::unique_ptr<const Tokenizer>> FromFile(const std::string& path,
                                                           const TokenizerOptions& options = {});

  ~Tokenizer();

  // Invalid UTF-8 in `text` is read as U+FFFD. Time grows as n log n. REQUIRES: less than 1 GiB.
  std::vector<Token> Encode(std::string_view text, const EncodeOptions& options = {}) const;

  // The ids of the concatenated texts; normalization and merges run across the borders. Added
  // tokens that are markers (special, or written <...> or [...]) are recognised only where they lie
  // wholly inside trusted text; other added tokens (runs of blanks, say) everywhere.
  std::vector<Token> EncodeSegments(const TextSegments& segments,
                                    const EncodeOptions& options = {}) const;

  // Ids that no token has are skipped. Always valid UTF-8: broken characters become U+FFFD.
  std::string Decode(std::span<const Token> tokens, const DecodeOptions& options = {}) const;

  // Largest id + 1. The model's logits may have more rows; those have no token.
  int64_t vocab_size() const;

  // The id of the token written so in the file: an added token's content, or else a vocabulary
  // entry ("Ġthe", "▁the", "<0x0A>").
  std::optional<Token> TokenToId(std::string_view content) const;
  // The inverse of TokenToId; empty for an id that no token has.
  std::string TokenText(Token id) const;
  // The bytes the token adds inside a text, possibly half a character; empty for special tokens and
  // for ids that no token has.
  std::string TokenBytes(Token id) const;
  // True for added tokens with "special": true.
  bool IsSpecial(Token id) const;
  // True for all added tokens, "<think>" as well, which is no special one.
  bool IsAdded(Token id) const;

 private:
  friend class StreamingDetokenizer;
  struct Parts;
  explicit Tokenizer(std::unique_ptr<const Parts> parts);

  std::unique_ptr<const Parts> parts_;
};

}  // namespace kvasir

#endif  // KVASIR_TOKENIZER_TOKENIZER_H_
