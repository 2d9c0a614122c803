// Lexer: template source to tokens, as jinja2 3.1 with trim_blocks and lstrip_blocks cuts it.
// Deliberately not configurable: delimiters and white-space rules are those of transformers.
#ifndef KVASIR_CHAT_LEXER_H_
#define KVASIR_CHAT_LEXER_H_

#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/chat/token.h"

namespace kvasir::chat {

// A syntax error with its place: "line: message".
Error SyntaxError(int line, const std::string& message);

// All tokens, the last one kEnd. ERRORS: kCorrupt, "line: what is wrong".
Result<std::vector<Token>> Tokenize(std::string_view source);

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_LEXER_H_
