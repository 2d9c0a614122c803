// How one token is shown to people and clients.
// Deliberately apart from decoding: a token alone may be half a character.
#ifndef KVASIR_TOKENIZER_TOKEN_NAME_H_
#define KVASIR_TOKENIZER_TOKEN_NAME_H_

#include <string>

#include "kvasir/tokenizer/tokenizer.h"

namespace kvasir {

// The bytes that a token adds to a text; of a special token, which adds none, how it is written.
std::string TokenPiece(const Tokenizer& tokenizer, Token token);
// The same as valid UTF-8: half a character is "bytes:\xe2\x82", as OpenAI writes it.
std::string TokenName(const Tokenizer& tokenizer, Token token);

}  // namespace kvasir

#endif  // KVASIR_TOKENIZER_TOKEN_NAME_H_
