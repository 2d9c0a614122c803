#include "kvasir/tokenizer/streaming_detokenizer.h"

#include <optional>
#include <utility>

#include "kvasir/tokenizer/tokenizer_parts.h"
#include "kvasir/tokenizer/utf8.h"

namespace kvasir {

StreamingDetokenizer::StreamingDetokenizer(const Tokenizer& tokenizer, StreamOptions options)
    : tokenizer_(tokenizer),
      decoder_(tokenizer.parts_->decoder),
      options_(options),
      at_begin_(!options.continues_text),
      strip_left_(options.continues_text ? 0 : decoder_.stream_rules().strip_characters) {}

std::string StreamingDetokenizer::Push(Token token) {
  const std::optional<std::string_view> token_text = tokenizer_.parts_->DecoderText(token);
  if (!token_text.has_value() || (options_.decode.skip_special && tokenizer_.IsSpecial(token))) {
    return "";
  }
  if (!decoder_.stream_rules().can_stream) {
    all_tokens_.push_back(token);
    return "";
  }
  std::string text;
  if (decoder_.stream_rules().needs_lookahead) {
    if (has_held_) {
      EmitHeld(held_is_first_ ? Decoder::Place::kFirst : Decoder::Place::kMiddle, &text);
    }
    held_ = token;
    has_held_ = true;
    held_is_first_ = at_begin_;
  } else {
    const Decoder::Place place = at_begin_ ? Decoder::Place::kFirst : Decoder::Place::kMiddle;
    Emit(decoder_.PieceOf(*token_text, place), &text);
  }
  at_begin_ = false;
  return StripBegin(std::move(text));
}

std::string StreamingDetokenizer::Finish() {
  std::string text;
  if (!decoder_.stream_rules().can_stream) {
    text = tokenizer_.Decode(all_tokens_, options_.decode);
    all_tokens_.clear();
  }
  if (has_held_) EmitHeld(held_is_first_ ? Decoder::Place::kOnly : Decoder::Place::kLast, &text);
  has_held_ = false;
  if (decoder_.stream_rules().has_raw_bytes && !partial_.empty()) {
    text += kReplacementCharacter;
    partial_.clear();
  }
  EndByteRun(&text);
  text = StripBegin(std::move(text));
  at_begin_ = true;
  strip_left_ = decoder_.stream_rules().strip_characters;
  return text;
}

void StreamingDetokenizer::EmitHeld(Decoder::Place place, std::string* text) {
  Emit(decoder_.PieceOf(*tokenizer_.parts_->DecoderText(held_), place), text);
}

void StreamingDetokenizer::Emit(const Decoder::TokenPiece& piece, std::string* text) {
  if (piece.is_byte_token) return EmitByteToken(piece.bytes[0], text);
  if (decoder_.stream_rules().has_raw_bytes) return EmitRawBytes(piece.bytes, text);
  EndByteRun(text);
  *text += piece.bytes;
}

void StreamingDetokenizer::EmitByteToken(char byte, std::string* text) {
  if (run_broken_) {
    *text += kReplacementCharacter;
    return;
  }
  partial_.push_back(byte);
  switch (ScanUtf8(partial_, 0).status) {
    case Utf8Status::kIncomplete:
      return;
    case Utf8Status::kComplete:
      *text += partial_;
      partial_.clear();
      return;
    case Utf8Status::kInvalid:
      run_broken_ = true;
      for (size_t i = 0; i < partial_.size(); ++i) *text += kReplacementCharacter;
      partial_.clear();
      return;
  }
}

void StreamingDetokenizer::EndByteRun(std::string* text) {
  for (size_t i = 0; i < partial_.size(); ++i) *text += kReplacementCharacter;
  partial_.clear();
  run_broken_ = false;
}

void StreamingDetokenizer::EmitRawBytes(std::string_view bytes, std::string* text) {
  partial_ += bytes;
  size_t position = 0;
  while (position < partial_.size()) {
    const Utf8Scan scan = ScanUtf8(partial_, position);
    if (scan.status == Utf8Status::kIncomplete) break;
    if (scan.status == Utf8Status::kComplete) {
      text->append(partial_, position, scan.size_bytes);
    } else {
      *text += kReplacementCharacter;
    }
    position += scan.size_bytes;
  }
  partial_.erase(0, position);
}

std::string StreamingDetokenizer::StripBegin(std::string text) {
  const std::string& character = decoder_.stream_rules().strip_character;
  size_t stripped = 0;
  while (strip_left_ > 0 && stripped < text.size()) {
    if (text.compare(stripped, character.size(), character) != 0) {
      strip_left_ = 0;
      break;
    }
    stripped += character.size();
    --strip_left_;
  }
  text.erase(0, stripped);
  return text;
}

}  // namespace kvasir
