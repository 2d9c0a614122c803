// The components of a tokenizer, for the two classes that run them.
// Deliberately private to this folder: users see tokenizer.h.
#ifndef KVASIR_TOKENIZER_TOKENIZER_PARTS_H_
#define KVASIR_TOKENIZER_TOKENIZER_PARTS_H_

#include <memory>
#include <optional>
#include <string_view>

#include "kvasir/tokenizer/added_tokens.h"
#include "kvasir/tokenizer/bpe_model.h"
#include "kvasir/tokenizer/decoder.h"
#include "kvasir/tokenizer/normalizer.h"
#include "kvasir/tokenizer/post_processor.h"
#include "kvasir/tokenizer/pre_tokenizer.h"
#include "kvasir/tokenizer/tokenizer.h"

namespace kvasir {

struct Tokenizer::Parts {
  std::unique_ptr<const Normalizer> normalizer;
  std::unique_ptr<const PreTokenizer> pre_tokenizer;
  BpeModel model;
  AddedTokens added;
  PostProcessor post_processor;
  Decoder decoder;
  std::optional<Token> begin = {};  // TokenizerOptions::begin_token

  // The text a decoder sees for `id`, if any token has it.
  std::optional<std::string_view> DecoderText(Token id) const;
};

}  // namespace kvasir

#endif  // KVASIR_TOKENIZER_TOKENIZER_PARTS_H_
