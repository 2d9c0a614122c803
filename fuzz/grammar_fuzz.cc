// Fuzzes GBNF: any text is refused with a reason, or gives a grammar whose masks hold what they
// say. Deliberately no check of what a grammar matches: the tests compare that with a naive
// matcher.
//
// Input: a grammar, then a zero byte and bytes that choose tokens.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvasir/grammar/grammar.h"
#include "kvasir/grammar/grammar_masks.h"
#include "kvasir/grammar/grammar_matcher.h"

namespace {

using kvasir::Grammar;
using kvasir::GrammarVocabulary;
using kvasir::Token;

std::shared_ptr<const GrammarVocabulary> SmallVocabulary() {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  for (const char* word : {"ab", "\"a", "aaaa", "\xC3\xA4\xC3", "  ", "\\n", "<end>"}) {
    bytes.emplace_back(word);
  }
  const auto end = static_cast<Token>(bytes.size()) - 1;
  return std::make_shared<const GrammarVocabulary>(std::move(bytes), std::span(&end, 1));
}

// Every choice asks for a mask, takes the first token it allows from some id on, and goes back once
// in a while; a second matcher that forgets as often as it can must agree.
void Exercise(const std::shared_ptr<const Grammar>& grammar, std::string_view choices) {
  const auto vocabulary = SmallVocabulary();
  kvasir::GrammarMasks masks(grammar, vocabulary);
  kvasir::GrammarMasks forgetful_masks(grammar, vocabulary, 1);
  kvasir::GrammarMatcher matcher(&masks);
  kvasir::GrammarMatcher forgetful(&forgetful_masks);
  const auto size = static_cast<Token>(vocabulary->size());
  for (size_t i = 0; i < choices.size() && i < 32 && !matcher.ended(); ++i) {
    const kvasir::TokenMask mask = matcher.Mask();
    KVASIR_CHECK(forgetful.Mask() == mask);
    KVASIR_CHECK(!mask.None());  // all bytes are there, so no state is a dead end
    Token token = static_cast<uint8_t>(choices[i]);
    while (!mask.Test(token)) token = (token + 1) % size;
    KVASIR_CHECK(matcher.Accept(token) && forgetful.Accept(token));
    if (i % 5 != 4) continue;
    matcher.Rollback(2);
    forgetful.Rollback(2);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  const auto grammar = Grammar::FromGbnf(input.substr(0, zero));
  if (!grammar.ok()) {
    KVASIR_CHECK(!grammar.error().message.empty());
    return 0;
  }
  Exercise(*grammar, zero == std::string_view::npos ? "0123456789" : input.substr(zero + 1));
  return 0;
}
