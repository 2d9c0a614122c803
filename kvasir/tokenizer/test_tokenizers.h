// Small tokenizers for tests, written out as tokenizer.json.
// Deliberately tiny: what they should do can be worked out by hand.
#ifndef KVASIR_TOKENIZER_TEST_TOKENIZERS_H_
#define KVASIR_TOKENIZER_TEST_TOKENIZERS_H_

#include <string>

#include "kvasir/base/json.h"

namespace kvasir {

// Bytes 0..255 as ids 0..255 in the byte alphabet, merges "l l" (256) and "h e" (257), added
// tokens <|end|> (258, special) and <think> (259, not special), four blanks (260, not special).
Json ByteLevelTokenizerJson();

// Llama-2 shape. Ids: <unk> 0, <s> 1, </s> 2, <0x00>..<0xFF> 3..258, "▁" 259, then "h", "i", "▁h",
// "▁hi" as 260..263, with the merges ▁+h, ▁h+i. Post-processor adds <s>.
Json SentencePieceTokenizerJson();

// Gemma 4 shape, with its ids where they are known: <pad> 0, <eos> 1, <bos> 2, <unk> 3, <|tool> 46,
// <tool|> 47, <|tool_call> 48, <tool_call|> 49, <|tool_response> 50, <tool_response|> 51, <|"|> 52,
// <|turn> 105, <turn|> 106, runs of one to three newlines 107..109; <|channel> 110, <channel|> 111,
// <|think|> 112; bytes 238..493. Then "▁" 500, "▁▁" 501, "h" 502, "i" 503, "▁hi" 504, "hi" 505,
// with the merges ▁+▁, h+i, ▁+hi. Adds nothing to a text.
Json Gemma4TokenizerJson();

}  // namespace kvasir

#endif  // KVASIR_TOKENIZER_TEST_TOKENIZERS_H_
