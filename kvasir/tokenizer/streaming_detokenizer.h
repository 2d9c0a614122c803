// StreamingDetokenizer: the text of tokens as they are generated, in whole characters.
// Deliberately not a stop-string matcher: it never holds back a complete character for later text.
#ifndef KVASIR_TOKENIZER_STREAMING_DETOKENIZER_H_
#define KVASIR_TOKENIZER_STREAMING_DETOKENIZER_H_

#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/token.h"
#include "kvasir/tokenizer/decoder.h"
#include "kvasir/tokenizer/tokenizer.h"

namespace kvasir {

struct StreamOptions {
  DecodeOptions decode;
  // True when the tokens go on with a text that has been shown already: a leading blank that a
  // decoder would strip at the beginning of a text is then part of it.
  bool continues_text = false;
};

// The concatenation of everything returned equals Tokenizer::Decode of all tokens, but for one
// case: where a run of byte tokens turns out invalid, Decode replaces every byte of the run by
// U+FFFD, while the characters completed before the invalid byte have been returned already. Text
// is never retracted. Decoders that do not work token by token (none is published) return
// everything from Finish(). THREADS: one thread at a time.
class StreamingDetokenizer {
 public:
  // REQUIRES: `tokenizer` outlives this object.
  explicit StreamingDetokenizer(const Tokenizer& tokenizer, StreamOptions options = {});

  // The characters that `token` completes: possibly none, always valid UTF-8.
  std::string Push(Token token);
  // What is left at the end; an incomplete character becomes U+FFFD. Then begins a new text.
  std::string Finish();

 private:
  void Emit(const Decoder::TokenPiece& piece, std::string* text);
  void EmitByteToken(char byte, std::string* text);
  void EmitRawBytes(std::string_view bytes, std::string* text);
  void EndByteRun(std::string* text);
  void EmitHeld(Decoder::Place place, std::string* text);
  std::string StripBegin(std::string text);

  const Tokenizer& tokenizer_;
  const Decoder& decoder_;
  const StreamOptions options_;
  std::vector<Token> all_tokens_;  // only when the decoder cannot stream
  bool at_begin_ = true;           // no token has come yet
  bool has_held_ = false;          // a token waits to learn whether it is the last
  bool held_is_first_ = false;
  Token held_ = 0;
  std::string partial_;      // bytes of an incomplete character, at most 3
  bool run_broken_ = false;  // the current run of byte tokens is not valid UTF-8
  int64_t strip_left_ = 0;   // characters that may still be stripped
};

}  // namespace kvasir

#endif  // KVASIR_TOKENIZER_STREAMING_DETOKENIZER_H_
