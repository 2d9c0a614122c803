#include "kvasir/tokenizer/pre_tokenizer.h"

#include <utility>

#include "kvasir/tokenizer/byte_alphabet.h"
#include "kvasir/tokenizer/component_json.h"
#include "kvasir/tokenizer/pattern.h"
#include "kvasir/tokenizer/split_behavior.h"
#include "kvasir/tokenizer/unicode.h"
#include "kvasir/tokenizer/utf8.h"

namespace kvasir {
namespace {

using PreTokenizerPtr = std::unique_ptr<const PreTokenizer>;

// https://github.com/openai/gpt-2/blob/master/src/encoder.py, Encoder.pat
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Replaces every piece by those that `cut(view, &parts)` leaves of it.
template <typename Cut>
void SplitPieces(PieceList* list, const Cut& cut) {
  std::vector<Piece> pieces;
  pieces.reserve(list->pieces.size());
  std::vector<TextPart> parts;
  for (const Piece& piece : list->pieces) {
    parts.clear();
    cut(list->View(piece), &parts);
    for (const auto& [span, is_match] : parts) {
      if (span.begin == span.end) continue;
      pieces.push_back({piece.begin + span.begin, piece.begin + span.end,
                        span.begin == 0 ? piece.origin : PieceOrigin::kInside});
    }
  }
  list->pieces = std::move(pieces);
}

// No rewriting makes more bytes of one: a blank may become a mark of four, a byte two.
constexpr size_t kMaxPieceGrowth = 4;

// Rewrites the text of every piece by `rewrite(piece, view, &text)`, which appends to `text`.
template <typename Rewrite>
void RewritePieces(PieceList* list, const Rewrite& rewrite) {
  std::string text;
  text.reserve(list->text.size() + list->text.size() / 2);
  for (Piece& piece : list->pieces) {
    const size_t begin = text.size();
    if (begin + kMaxPieceGrowth * (piece.end - piece.begin + 1) <= list->max_text_bytes) {
      rewrite(piece, list->View(piece), &text);
    } else {
      text += list->View(piece);
    }
    piece.begin = begin;
    piece.end = text.size();
  }
  list->text = std::move(text);
}

// The parts of `text` where every character that satisfies `is_match` is a match of its own.
template <typename IsMatch>
void CutAtCharacters(std::string_view text, const IsMatch& is_match, std::vector<TextPart>* parts) {
  size_t gap_begin = 0;
  for (size_t position = 0; position < text.size();) {
    const Utf8Char character = DecodeUtf8(text, position);
    const size_t end = position + character.size_bytes;
    if (is_match(character.code)) {
      if (gap_begin < position) parts->push_back({{gap_begin, position}, false});
      parts->push_back({{position, end}, true});
      gap_begin = end;
    }
    position = end;
  }
  if (gap_begin < text.size()) parts->push_back({{gap_begin, text.size()}, false});
}

class Identity final : public PreTokenizer {
 public:
  void Apply(PieceList*) const override {}
};

class Sequence final : public PreTokenizer {
 public:
  explicit Sequence(std::vector<PreTokenizerPtr> parts) : parts_(std::move(parts)) {}
  void Apply(PieceList* list) const override {
    for (const PreTokenizerPtr& part : parts_) part->Apply(list);
  }

 private:
  std::vector<PreTokenizerPtr> parts_;
};

class Split final : public PreTokenizer {
 public:
  Split(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}

  void Apply(PieceList* list) const override {
    Pattern::Finder finder(pattern_);
    std::vector<TextSpan> matches;
    SplitPieces(list, [&](std::string_view text, std::vector<TextPart>* parts) {
      matches.clear();
      finder.FindAll(text, &matches);
      PartsOfMatches(matches, text.size(), parts);
      if (invert_) {
        for (TextPart& part : *parts) part.is_match = !part.is_match;
      }
      ApplySplitBehavior(behavior_, parts);
    });
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

class SplitAtCharacters final : public PreTokenizer {
 public:
  using IsMatch = bool (*)(char32_t);
  SplitAtCharacters(IsMatch is_match, SplitBehavior behavior)
      : is_match_(is_match), behavior_(behavior) {}

  void Apply(PieceList* list) const override {
    SplitPieces(list, [&](std::string_view text, std::vector<TextPart>* parts) {
      CutAtCharacters(text, is_match_, parts);
      ApplySplitBehavior(behavior_, parts);
    });
  }

 private:
  IsMatch is_match_;
  SplitBehavior behavior_;
};

// \w+|[^\w\s]+, everything else removed.
class Whitespace final : public PreTokenizer {
 public:
  void Apply(PieceList* list) const override {
    SplitPieces(list, [](std::string_view text, std::vector<TextPart>* parts) {
      Class run_class = Class::kSpace;
      size_t run_begin = 0;
      for (size_t position = 0; position < text.size();) {
        const Utf8Char character = DecodeUtf8(text, position);
        const Class character_class = ClassOf(character.code);
        if (character_class != run_class) {
          if (run_class != Class::kSpace) parts->push_back({{run_begin, position}, true});
          run_class = character_class;
          run_begin = position;
        }
        position += character.size_bytes;
      }
      if (run_class != Class::kSpace) parts->push_back({{run_begin, text.size()}, true});
    });
  }

 private:
  enum class Class { kSpace, kWord, kOther };
  static Class ClassOf(char32_t code) {
    if (IsWordCharacter(code)) return Class::kWord;
    return IsWhitespace(code) ? Class::kSpace : Class::kOther;
  }
};

class FixedLength final : public PreTokenizer {
 public:
  explicit FixedLength(int64_t length) : length_(length) {}
  void Apply(PieceList* list) const override {
    SplitPieces(list, [&](std::string_view text, std::vector<TextPart>* parts) {
      size_t begin = 0;
      int64_t characters = 0;
      for (size_t position = 0; position < text.size();) {
        position += DecodeUtf8(text, position).size_bytes;
        if (++characters == length_ || position == text.size()) {
          parts->push_back({{begin, position}, false});
          begin = position;
          characters = 0;
        }
      }
    });
  }

 private:
  int64_t length_;
};

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(std::optional<Pattern> pattern, bool add_prefix_space)
      : pattern_(std::move(pattern)), add_prefix_space_(add_prefix_space) {}

  void Apply(PieceList* list) const override {
    if (add_prefix_space_) {
      RewritePieces(list, [](const Piece&, std::string_view view, std::string* text) {
        if (!view.starts_with(' ')) *text += ' ';
        *text += view;
      });
    }
    if (pattern_.has_value()) {
      Pattern::Finder finder(*pattern_);
      std::vector<TextSpan> matches;
      SplitPieces(list, [&](std::string_view text, std::vector<TextPart>* parts) {
        matches.clear();
        finder.FindAll(text, &matches);
        PartsOfMatches(matches, text.size(), parts);
      });
    }
    RewritePieces(list, [](const Piece&, std::string_view view, std::string* text) {
      AppendByteCharacters(view, text);
    });
  }

 private:
  std::optional<Pattern> pattern_;
  bool add_prefix_space_;
};

enum class PrependScheme { kAlways, kFirst, kNever };

class Metaspace final : public PreTokenizer {
 public:
  Metaspace(std::string mark, PrependScheme scheme, bool split)
      : mark_(std::move(mark)), scheme_(scheme), split_(split) {}

  void Apply(PieceList* list) const override {
    RewritePieces(list, [&](const Piece& piece, std::string_view view, std::string* text) {
      const bool marked = view.starts_with(' ') || view.starts_with(mark_);
      const bool wanted =
          scheme_ == PrependScheme::kAlways ||
          (scheme_ == PrependScheme::kFirst && piece.origin == PieceOrigin::kTextBegin);
      if (wanted && !marked) *text += mark_;
      for (const char byte : view) {
        if (byte == ' ') {
          *text += mark_;
        } else {
          *text += byte;
        }
      }
    });
    if (!split_) return;
    const char32_t mark = DecodeUtf8(mark_, 0).code;
    SplitPieces(list, [&](std::string_view text, std::vector<TextPart>* parts) {
      CutAtCharacters(
          text, [mark](char32_t code) { return code == mark; }, parts);
      ApplySplitBehavior(SplitBehavior::kMergedWithNext, parts);
    });
  }

 private:
  std::string mark_;
  PrependScheme scheme_;
  bool split_;
};

Result<PreTokenizerPtr> ReadSequence(const Json& json) {
  std::vector<PreTokenizerPtr> parts;
  KVASIR_TRY_OK(ForEachComponent(json, "pretokenizers", [&](const Json& part) -> Status {
    KVASIR_TRY(PreTokenizerPtr pre_tokenizer, PreTokenizer::FromJson(part));
    parts.push_back(std::move(pre_tokenizer));
    return {};
  }));
  return PreTokenizerPtr(std::make_unique<Sequence>(std::move(parts)));
}

Result<PreTokenizerPtr> ReadSplit(const Json& json) {
  KVASIR_TRY(Pattern pattern, Pattern::FromJson(json));
  KVASIR_TRY(const SplitBehavior behavior, SplitBehaviorFromJson(json));
  KVASIR_TRY(const bool invert, json.GetBoolOr("invert", false));
  return PreTokenizerPtr(std::make_unique<Split>(std::move(pattern), behavior, invert));
}

Result<PreTokenizerPtr> ReadByteLevel(const Json& json) {
  KVASIR_TRY(const bool add_prefix_space, json.GetBoolOr("add_prefix_space", true));
  KVASIR_TRY(const bool use_regex, json.GetBoolOr("use_regex", true));
  std::optional<Pattern> pattern;
  if (use_regex) {
    KVASIR_TRY(pattern, Pattern::FromRegex(kGpt2Pattern));
  }
  return PreTokenizerPtr(std::make_unique<ByteLevel>(std::move(pattern), add_prefix_space));
}

Result<PreTokenizerPtr> ReadMetaspace(const Json& json) {
  KVASIR_TRY(std::string mark, GetCharacter(json, "replacement"));
  // Files from before 2023 have add_prefix_space in the place of prepend_scheme.
  KVASIR_TRY(const bool add_prefix_space, json.GetBoolOr("add_prefix_space", true));
  KVASIR_TRY(const std::string name,
             json.GetStringOr("prepend_scheme", add_prefix_space ? "always" : "never"));
  KVASIR_TRY(const bool split, json.GetBoolOr("split", true));
  PrependScheme scheme = PrependScheme::kAlways;
  if (name == "first") {
    scheme = PrependScheme::kFirst;
  } else if (name == "never") {
    scheme = PrependScheme::kNever;
  } else if (name != "always") {
    return {ErrorCode::kUnsupported,
            "field 'prepend_scheme' is '" + name + "'; known are always, first, never"};
  }
  if (!add_prefix_space && scheme != PrependScheme::kNever) {
    return {ErrorCode::kCorrupt,
            "field 'prepend_scheme' is '" + name + "' but 'add_prefix_space' is false"};
  }
  return PreTokenizerPtr(std::make_unique<Metaspace>(std::move(mark), scheme, split));
}

Result<PreTokenizerPtr> ReadDigits(const Json& json) {
  KVASIR_TRY(const bool individual, json.GetBoolOr("individual_digits", false));
  return PreTokenizerPtr(std::make_unique<SplitAtCharacters>(
      &IsNumeric, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous));
}

Result<PreTokenizerPtr> ReadPunctuation(const Json& json) {
  SplitBehavior behavior = SplitBehavior::kIsolated;
  if (json.Find("behavior") != nullptr) {
    KVASIR_TRY(behavior, SplitBehaviorFromJson(json));
  }
  return PreTokenizerPtr(std::make_unique<SplitAtCharacters>(&IsPunctuation, behavior));
}

Result<PreTokenizerPtr> ReadDelimiter(const Json& json) {
  KVASIR_TRY(const std::string delimiter, GetCharacter(json, "delimiter"));
  Json component;
  component.Set("pattern", Json()).Set("String", delimiter);
  KVASIR_TRY(Pattern pattern, Pattern::FromJson(component));
  return PreTokenizerPtr(
      std::make_unique<Split>(std::move(pattern), SplitBehavior::kRemoved, false));
}

Result<PreTokenizerPtr> ReadFixedLength(const Json& json) {
  KVASIR_TRY(const int64_t length, json.GetIntOr("length", 5));
  if (length < 1) return {ErrorCode::kCorrupt, "field 'length' must be at least 1"};
  return PreTokenizerPtr(std::make_unique<FixedLength>(length));
}

PreTokenizerPtr MakeBert() {
  std::vector<PreTokenizerPtr> parts;
  parts.push_back(std::make_unique<SplitAtCharacters>(&IsWhitespace, SplitBehavior::kRemoved));
  parts.push_back(std::make_unique<SplitAtCharacters>(&IsPunctuation, SplitBehavior::kIsolated));
  return std::make_unique<Sequence>(std::move(parts));
}

constexpr size_t kMaxGrowth = 32;
constexpr size_t kGrowthSlackBytes = 1024;

}  // namespace

PieceList::PieceList(std::string whole, PieceOrigin origin)
    : text(std::move(whole)), max_text_bytes(text.size() * kMaxGrowth + kGrowthSlackBytes) {
  if (!text.empty()) pieces.push_back({0, text.size(), origin});
}

Result<PreTokenizerPtr> PreTokenizer::FromJson(const Json& json) {
  if (json.is_null()) return PreTokenizerPtr(std::make_unique<Identity>());
  KVASIR_TRY(const std::string type, ComponentType(json));
  if (type == "Sequence") return ReadSequence(json);
  if (type == "Split") return ReadSplit(json);
  if (type == "ByteLevel") return ReadByteLevel(json);
  if (type == "Metaspace") return ReadMetaspace(json);
  if (type == "Digits") return ReadDigits(json);
  if (type == "Punctuation") return ReadPunctuation(json);
  if (type == "CharDelimiterSplit") return ReadDelimiter(json);
  if (type == "FixedLength") return ReadFixedLength(json);
  if (type == "BertPreTokenizer") return MakeBert();
  if (type == "Whitespace") return PreTokenizerPtr(std::make_unique<Whitespace>());
  if (type == "WhitespaceSplit") {
    return PreTokenizerPtr(
        std::make_unique<SplitAtCharacters>(&IsWhitespace, SplitBehavior::kRemoved));
  }
  return UnsupportedType(type,
                         "Sequence, Split, ByteLevel, Metaspace, Digits, Punctuation, Whitespace, "
                         "WhitespaceSplit, CharDelimiterSplit, FixedLength, BertPreTokenizer");
}

}  // namespace kvasir
