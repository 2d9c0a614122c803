// Tokens of a template.
// Deliberately no keywords: in Jinja `if` or `set` is a name that its position makes a keyword.
#ifndef KVASIR_CHAT_TOKEN_H_
#define KVASIR_CHAT_TOKEN_H_

#include <cstdint>
#include <string>

namespace kvasir::chat {

enum class TokenKind {
  kData,           // text between tags, white-space control already applied
  kBlockBegin,     // {%
  kBlockEnd,       // %}
  kVariableBegin,  // {{
  kVariableEnd,    // }}
  kName,
  kString,
  kInteger,
  kFloat,
  kOperator,  // `text` is the operator
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  int line = 1;
  std::string text;  // the name, the unescaped string, the data or the operator
  int64_t integer = 0;
  double number = 0;

  bool Is(TokenKind wanted, const char* wanted_text) const {
    return kind == wanted && text == wanted_text;
  }
  bool IsOperator(const char* wanted) const { return Is(TokenKind::kOperator, wanted); }
  bool IsName(const char* wanted) const { return Is(TokenKind::kName, wanted); }
};

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_TOKEN_H_
