#include "kvasir/tokenizer/normalizer.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/tokenizer/byte_alphabet.h"
#include "kvasir/tokenizer/component_json.h"
#include "kvasir/tokenizer/pattern.h"
#include "kvasir/tokenizer/unicode.h"
#include "kvasir/tokenizer/utf8.h"

namespace kvasir {
namespace {

using NormalizerPtr = std::unique_ptr<const Normalizer>;

// A longer prefix is no word mark, and one is put before every piece of text.
constexpr size_t kMaxPrependBytes = 256;

// Rewrites every character by `map`, which returns false to keep it and otherwise fills in what
// takes its place.
template <typename Map>
void RewriteCharacters(TracedText* text, const Map& map) {
  TextRewriter rewriter(*text);
  std::string replacement;
  for (size_t position = 0; position < text->bytes.size();) {
    const Utf8Char character = DecodeUtf8(text->bytes, position);
    const size_t end = position + character.size_bytes;
    replacement.clear();
    if (map(character.code, &replacement)) {
      rewriter.Replace(position, end, replacement);
    } else {
      rewriter.Keep(position, end);
    }
    position = end;
  }
  *text = rewriter.Finish();
}

class Identity final : public Normalizer {
 public:
  void Apply(TracedText*) const override {}
};

class Sequence final : public Normalizer {
 public:
  explicit Sequence(std::vector<NormalizerPtr> parts) : parts_(std::move(parts)) {}
  void Apply(TracedText* text) const override {
    for (const NormalizerPtr& part : parts_) part->Apply(text);
  }

 private:
  std::vector<NormalizerPtr> parts_;
};

class UnicodeForm final : public Normalizer {
 public:
  explicit UnicodeForm(NormalizationForm form) : form_(form) {}

  void Apply(TracedText* text) const override {
    const std::string& bytes = text->bytes;
    if (IsUnchanged(bytes)) return;
    TextRewriter rewriter(*text);
    for (size_t begin = 0; begin < bytes.size();) {
      const size_t end = PartEnd(bytes, begin);
      const std::string_view part = std::string_view(bytes).substr(begin, end - begin);
      const std::string normalized = Normalize(part, form_);
      if (normalized == part) {
        rewriter.Keep(begin, end);
      } else {
        rewriter.Replace(begin, end, normalized);
      }
      begin = end;
    }
    *text = rewriter.Finish();
  }

 private:
  // Below U+0300 everything is NFC, and ASCII is in every form.
  bool IsUnchanged(std::string_view bytes) const {
    const unsigned char limit = form_ == NormalizationForm::kNfc ? 0xCC : 0x80;
    for (const char byte : bytes) {
      if (static_cast<unsigned char>(byte) >= limit) return false;
    }
    return true;
  }

  size_t PartEnd(std::string_view bytes, size_t begin) const {
    size_t end = begin + DecodeUtf8(bytes, begin).size_bytes;
    while (end < bytes.size()) {
      const Utf8Char next = DecodeUtf8(bytes, end);
      if (IsNormalizationBoundary(next.code, form_)) break;
      end += next.size_bytes;
    }
    return end;
  }

  NormalizationForm form_;
};

class Replace final : public Normalizer {
 public:
  Replace(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  void Apply(TracedText* text) const override {
    if (text->bytes.empty()) return;
    std::vector<TextSpan> matches;
    Pattern::Finder(pattern_).FindAll(text->bytes, &matches);
    if (matches.empty()) return;
    TextRewriter rewriter(*text);
    size_t kept = 0;
    for (const TextSpan& match : matches) {
      rewriter.Keep(kept, match.begin);
      rewriter.Replace(match.begin, match.end, content_);
      kept = match.end;
    }
    rewriter.Keep(kept, text->bytes.size());
    *text = rewriter.Finish();
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void Apply(TracedText* text) const override {
    if (text->bytes.empty()) return;
    TextRewriter rewriter(*text);
    rewriter.Replace(0, 0, prefix_);
    rewriter.Keep(0, text->bytes.size());
    *text = rewriter.Finish();
  }

 private:
  std::string prefix_;
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  void Apply(TracedText* text) const override {
    const std::string& bytes = text->bytes;
    size_t begin = 0;
    size_t end = bytes.size();
    while (left_ && begin < end) {
      const Utf8Char character = DecodeUtf8(bytes, begin);
      if (!IsWhitespace(character.code)) break;
      begin += character.size_bytes;
    }
    while (right_ && begin < end) {
      const size_t last = PreviousUtf8(bytes, end);
      if (!IsWhitespace(DecodeUtf8(bytes, last).code)) break;
      end = last;
    }
    if (end - begin != bytes.size()) *text = text->Slice(begin, end);
  }

 private:
  bool left_;
  bool right_;
};

class Lowercase final : public Normalizer {
 public:
  void Apply(TracedText* text) const override {
    RewriteCharacters(text, [](char32_t code, std::string* lower) {
      AppendLowercase(code, lower);
      return true;
    });
  }
};

class StripAccents final : public Normalizer {
 public:
  void Apply(TracedText* text) const override {
    RewriteCharacters(text, [](char32_t code, std::string*) { return IsMark(code); });
  }
};

// The cleaning step of neural machine translation in SentencePiece.
class Nmt final : public Normalizer {
 public:
  void Apply(TracedText* text) const override {
    RewriteCharacters(text, [](char32_t code, std::string* replacement) {
      if (IsSpaceLike(code)) replacement->push_back(' ');
      return IsSpaceLike(code) || IsDropped(code);
    });
  }

 private:
  static bool IsDropped(char32_t code) {
    return (code >= 0x01 && code <= 0x08) || code == 0x0B || (code >= 0x0E && code <= 0x1F) ||
           code == 0x7F || code == 0x8F || code == 0x9F;
  }
  static bool IsSpaceLike(char32_t code) {
    return code == 0x09 || code == 0x0A || code == 0x0C || code == 0x0D || code == 0x1680 ||
           (code >= 0x200B && code <= 0x200F) || code == 0x2028 || code == 0x2029 ||
           code == 0x2581 || code == 0xFEFF || code == 0xFFFD;
  }
};

class ByteLevel final : public Normalizer {
 public:
  void Apply(TracedText* text) const override {
    RewriteCharacters(text, [](char32_t code, std::string* characters) {
      std::string bytes;
      AppendUtf8(code, &bytes);
      AppendByteCharacters(bytes, characters);
      return true;
    });
  }
};

class CleanText final : public Normalizer {
 public:
  void Apply(TracedText* text) const override {
    RewriteCharacters(text, [](char32_t code, std::string* replacement) {
      // Control characters go first: only these three of them count as blanks.
      const bool blank_control = code == '\t' || code == '\n' || code == '\r';
      if (!blank_control && (code == 0 || code == 0xFFFD || IsControl(code))) return true;
      if (!IsWhitespace(code)) return false;
      replacement->push_back(' ');
      return true;
    });
  }
};

class SpaceHanCharacters final : public Normalizer {
 public:
  void Apply(TracedText* text) const override {
    RewriteCharacters(text, [](char32_t code, std::string* spaced) {
      if (!IsHan(code)) return false;
      spaced->push_back(' ');
      AppendUtf8(code, spaced);
      spaced->push_back(' ');
      return true;
    });
  }

 private:
  static bool IsHan(char32_t code) {
    return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) ||
           (code >= 0x20000 && code <= 0x2A6DF) || (code >= 0x2A700 && code <= 0x2B73F) ||
           (code >= 0x2B740 && code <= 0x2B81F) || (code >= 0x2B920 && code <= 0x2CEAF) ||
           (code >= 0xF900 && code <= 0xFAFF) || (code >= 0x2F800 && code <= 0x2FA1F);
  }
};

class DropNonspacingMarks final : public Normalizer {
 public:
  void Apply(TracedText* text) const override {
    RewriteCharacters(text, [](char32_t code, std::string*) { return IsNonspacingMark(code); });
  }
};

Result<NormalizerPtr> ReadBert(const Json& json) {
  KVASIR_TRY(const bool clean_text, json.GetBoolOr("clean_text", true));
  KVASIR_TRY(const bool space_han, json.GetBoolOr("handle_chinese_chars", true));
  KVASIR_TRY(const bool lowercase, json.GetBoolOr("lowercase", true));
  KVASIR_TRY(const bool strip_accents, json.GetBoolOr("strip_accents", lowercase));
  std::vector<NormalizerPtr> parts;
  if (clean_text) parts.push_back(std::make_unique<CleanText>());
  if (space_han) parts.push_back(std::make_unique<SpaceHanCharacters>());
  if (strip_accents) {
    parts.push_back(std::make_unique<UnicodeForm>(NormalizationForm::kNfd));
    parts.push_back(std::make_unique<DropNonspacingMarks>());
  }
  if (lowercase) parts.push_back(std::make_unique<Lowercase>());
  return NormalizerPtr(std::make_unique<Sequence>(std::move(parts)));
}

Result<NormalizerPtr> ReadReplace(const Json& json) {
  KVASIR_TRY(Pattern pattern, Pattern::FromJson(json));
  KVASIR_TRY(std::string content, json.GetString("content"));
  return NormalizerPtr(std::make_unique<Replace>(std::move(pattern), std::move(content)));
}

Result<NormalizerPtr> ReadPrepend(const Json& json) {
  KVASIR_TRY(std::string prefix, json.GetString("prepend"));
  if (prefix.size() > kMaxPrependBytes) {
    return {ErrorCode::kUnsupported,
            "field 'prepend' is longer than " + std::to_string(kMaxPrependBytes) + " bytes"};
  }
  return NormalizerPtr(std::make_unique<Prepend>(std::move(prefix)));
}

Result<NormalizerPtr> ReadStrip(const Json& json) {
  KVASIR_TRY(const bool left, json.GetBoolOr("strip_left", true));
  KVASIR_TRY(const bool right, json.GetBoolOr("strip_right", true));
  return NormalizerPtr(std::make_unique<Strip>(left, right));
}

Result<NormalizerPtr> ReadSequence(const Json& json) {
  std::vector<NormalizerPtr> parts;
  KVASIR_TRY_OK(ForEachComponent(json, "normalizers", [&](const Json& part) -> Status {
    KVASIR_TRY(NormalizerPtr normalizer, Normalizer::FromJson(part));
    parts.push_back(std::move(normalizer));
    return {};
  }));
  return NormalizerPtr(std::make_unique<Sequence>(std::move(parts)));
}

NormalizerPtr MakeWithoutFields(std::string_view type) {
  if (type == "NFC") return std::make_unique<UnicodeForm>(NormalizationForm::kNfc);
  if (type == "NFD") return std::make_unique<UnicodeForm>(NormalizationForm::kNfd);
  if (type == "NFKC") return std::make_unique<UnicodeForm>(NormalizationForm::kNfkc);
  if (type == "NFKD") return std::make_unique<UnicodeForm>(NormalizationForm::kNfkd);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "Nmt") return std::make_unique<Nmt>();
  if (type == "ByteLevel") return std::make_unique<ByteLevel>();
  return nullptr;
}

}  // namespace

Result<NormalizerPtr> Normalizer::FromJson(const Json& json) {
  if (json.is_null()) return NormalizerPtr(std::make_unique<Identity>());
  KVASIR_TRY(const std::string type, ComponentType(json));
  if (type == "Sequence") return ReadSequence(json);
  if (type == "Replace") return ReadReplace(json);
  if (type == "Prepend") return ReadPrepend(json);
  if (type == "Strip") return ReadStrip(json);
  if (type == "BertNormalizer") return ReadBert(json);
  if (NormalizerPtr normalizer = MakeWithoutFields(type)) return normalizer;
  return UnsupportedType(type,
                         "Sequence, NFC, NFD, NFKC, NFKD, Replace, Prepend, Strip, StripAccents, "
                         "Lowercase, Nmt, ByteLevel, BertNormalizer");
}

}  // namespace kvasir
