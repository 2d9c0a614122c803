#include "kvasir/tokenizer/utf8.h"

#include <cstdint>

namespace kvasir {
namespace {

uint8_t ByteAt(std::string_view bytes, size_t position) {
  return static_cast<uint8_t>(bytes[position]);
}

struct SecondByte {
  uint8_t low;
  uint8_t high;
};

// Table 3-7 of the Unicode standard: a few lead bytes narrow the range of the byte after them.
SecondByte SecondByteRange(uint8_t lead) {
  switch (lead) {
    case 0xE0:
      return {0xA0, 0xBF};
    case 0xED:
      return {0x80, 0x9F};
    case 0xF0:
      return {0x90, 0xBF};
    case 0xF4:
      return {0x80, 0x8F};
    default:
      return {0x80, 0xBF};
  }
}

size_t SequenceSize(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;
  if (lead < 0xE0) return 2;
  if (lead < 0xF0) return 3;
  return lead < 0xF5 ? 4 : 0;
}

}  // namespace

Utf8Scan ScanUtf8(std::string_view bytes, size_t position) {
  const uint8_t lead = ByteAt(bytes, position);
  const size_t size = SequenceSize(lead);
  if (size == 0) return {Utf8Status::kInvalid, 1};
  SecondByte range = SecondByteRange(lead);
  for (size_t i = 1; i < size; ++i) {
    if (position + i == bytes.size()) return {Utf8Status::kIncomplete, i};
    const uint8_t byte = ByteAt(bytes, position + i);
    if (byte < range.low || byte > range.high) return {Utf8Status::kInvalid, i};
    range = {0x80, 0xBF};
  }
  return {Utf8Status::kComplete, size};
}

bool IsValidUtf8(std::string_view bytes) {
  for (size_t position = 0; position < bytes.size();) {
    const Utf8Scan scan = ScanUtf8(bytes, position);
    if (scan.status != Utf8Status::kComplete) return false;
    position += scan.size_bytes;
  }
  return true;
}

std::string ToValidUtf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (size_t position = 0; position < bytes.size();) {
    const Utf8Scan scan = ScanUtf8(bytes, position);
    text += scan.status == Utf8Status::kComplete ? bytes.substr(position, scan.size_bytes)
                                                 : kReplacementCharacter;
    position += scan.size_bytes;
  }
  return text;
}

Utf8Char DecodeUtf8(std::string_view text, size_t position) {
  const uint8_t lead = ByteAt(text, position);
  const auto tail = [&](size_t i) {
    return static_cast<char32_t>(ByteAt(text, position + i) & 0x3F);
  };
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(static_cast<char32_t>(lead & 0x1F) << 6) | tail(1), 2};
  if (lead < 0xF0) {
    return {(static_cast<char32_t>(lead & 0x0F) << 12) | (tail(1) << 6) | tail(2), 3};
  }
  return {(static_cast<char32_t>(lead & 0x07) << 18) | (tail(1) << 12) | (tail(2) << 6) | tail(3),
          4};
}

size_t PreviousUtf8(std::string_view text, size_t end) {
  size_t position = end - 1;
  while (position > 0 && (ByteAt(text, position) & 0xC0) == 0x80) --position;
  return position;
}

void AppendUtf8(char32_t code, std::string* text) {
  const auto tail = [&](int shift) {
    text->push_back(static_cast<char>(0x80 | ((code >> shift) & 0x3F)));
  };
  if (code < 0x80) {
    text->push_back(static_cast<char>(code));
  } else if (code < 0x800) {
    text->push_back(static_cast<char>(0xC0 | (code >> 6)));
    tail(0);
  } else if (code < 0x10000) {
    text->push_back(static_cast<char>(0xE0 | (code >> 12)));
    tail(6);
    tail(0);
  } else {
    text->push_back(static_cast<char>(0xF0 | (code >> 18)));
    tail(12);
    tail(6);
    tail(0);
  }
}

}  // namespace kvasir
