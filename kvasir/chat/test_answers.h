// What parsers of answers say, as a line of text, and that it does not depend on pieces.
// Deliberately for tests alone.
#ifndef KVASIR_CHAT_TEST_ANSWERS_H_
#define KVASIR_CHAT_TEST_ANSWERS_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <string>
#include <string_view>
#include <utility>

#include "kvasir/chat/answer_part.h"

namespace kvasir {

// "R:thoughtT:textC:name=arguments", neighbours of one kind joined.
inline std::string Describe(const AnswerParts& parts) {
  std::string text;
  const AnswerPart* last = nullptr;
  for (const AnswerPart& part : parts) {
    const bool goes_on =
        last != nullptr && last->kind == part.kind && part.kind != AnswerPart::Kind::kCall;
    if (!goes_on && part.kind == AnswerPart::Kind::kText) text += "T:";
    if (!goes_on && part.kind == AnswerPart::Kind::kReasoning) text += "R:";
    if (part.kind == AnswerPart::Kind::kCall) text += "C:";
    if (!goes_on && part.kind == AnswerPart::Kind::kArguments) text += "=";
    text += part.text;
    last = &part;
  }
  return text;
}

// What Parser(options) says of `text`, however it is cut.
template <typename Parser, typename Options>
std::string ParseHowever(const Options& options, const std::string& text) {
  Parser whole(options);
  AnswerParts parts = whole.Push(text);
  for (AnswerPart& part : whole.Finish()) parts.push_back(std::move(part));
  const std::string expected = Describe(parts);
  std::minstd_rand random(7);
  for (const size_t longest : {size_t{1}, size_t{3}, size_t{9}, size_t{40}}) {
    Parser cut(options);
    AnswerParts pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t size = longest == 1 ? 1 : 1 + random() % longest;
      for (AnswerPart& part : cut.Push(std::string_view(text).substr(at, size))) {
        pieces.push_back(std::move(part));
      }
      at += size;
    }
    for (AnswerPart& part : cut.Finish()) pieces.push_back(std::move(part));
    EXPECT_EQ(Describe(pieces), expected) << "in pieces of up to " << longest;
  }
  return expected;
}

}  // namespace kvasir

#endif  // KVASIR_CHAT_TEST_ANSWERS_H_
