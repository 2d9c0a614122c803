#include "kvasir/grammar/plain_text.h"

namespace kvasir {
namespace {

std::optional<PlainState> Lead(uint8_t byte) {
  if (byte < 0x20 || byte == '"' || byte == '\\') return std::nullopt;
  if (byte < 0x80) return PlainState::kBoundary;
  if (byte < 0xC2 || byte > 0xF4) return std::nullopt;
  if (byte < 0xE0) return PlainState::kLast;
  if (byte == 0xE0) return PlainState::kE0;
  if (byte == 0xED) return PlainState::kED;
  if (byte < 0xF0) return PlainState::kTwo;
  if (byte == 0xF0) return PlainState::kF0;
  return byte == 0xF4 ? PlainState::kF4 : PlainState::kThree;
}

std::optional<PlainState> Between(uint8_t byte, uint8_t low, uint8_t high, PlainState then) {
  if (byte < low || byte > high) return std::nullopt;
  return then;
}

}  // namespace

std::optional<PlainState> NextPlain(PlainState state, uint8_t byte) {
  switch (state) {
    case PlainState::kBoundary:
      return Lead(byte);
    case PlainState::kLast:
      return Between(byte, 0x80, 0xBF, PlainState::kBoundary);
    case PlainState::kTwo:
      return Between(byte, 0x80, 0xBF, PlainState::kLast);
    case PlainState::kThree:
      return Between(byte, 0x80, 0xBF, PlainState::kTwo);
    case PlainState::kE0:
      return Between(byte, 0xA0, 0xBF, PlainState::kLast);
    case PlainState::kED:
      return Between(byte, 0x80, 0x9F, PlainState::kLast);
    case PlainState::kF0:
      return Between(byte, 0x90, 0xBF, PlainState::kTwo);
    case PlainState::kF4:
      return Between(byte, 0x80, 0x8F, PlainState::kTwo);
  }
  return std::nullopt;
}

std::optional<int> PlainCharacters(std::string_view bytes) {
  PlainState state = PlainState::kBoundary;
  int characters = 0;
  for (const char c : bytes) {
    const auto next = NextPlain(state, static_cast<uint8_t>(c));
    if (!next.has_value()) return std::nullopt;
    state = *next;
    if (state == PlainState::kBoundary) ++characters;
  }
  if (state != PlainState::kBoundary) return std::nullopt;
  return characters;
}

}  // namespace kvasir
