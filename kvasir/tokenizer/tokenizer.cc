#include "kvasir/tokenizer/tokenizer.h"

#include <algorithm>
#include <utility>

#include "kvasir/tokenizer/tokenizer_parts.h"
#include "kvasir/tokenizer/utf8.h"

namespace kvasir {
namespace {

// A member of tokenizer.json that may be absent, which means the same as null.
const Json& MemberOrNull(const Json& json, std::string_view key) {
  static const Json null;
  const Json* member = json.Find(key);
  return member == nullptr ? null : *member;
}

// Adds the name of the component to its error.
template <typename T>
Result<T> In(std::string_view component, Result<T> result) {
  if (!result.ok()) return WithContext(result.error(), component);
  return result;
}

// Concatenates segments, remembering where trusted text lies.
TracedText Concatenate(const TextSegments& segments) {
  TracedText text;
  bool any_trusted = false;
  bool all_trusted = true;
  for (const TextSegment& segment : segments) {
    if (segment.text.empty()) continue;
    any_trusted |= segment.trusted;
    all_trusted &= segment.trusted;
  }
  text.uniform = all_trusted ? 1 : 0;
  for (const TextSegment& segment : segments) {
    const std::string valid = ToValidUtf8(segment.text);
    text.bytes += valid;
    if (any_trusted && !all_trusted) {
      text.trusted.insert(text.trusted.end(), valid.size(), segment.trusted ? 1 : 0);
    }
  }
  return text;
}

// Runs one encoding: added tokens, normalizer, added tokens again, words, model.
class Encoding {
 public:
  Encoding(const AddedTokens& added, const Normalizer& normalizer, const PreTokenizer& pre,
           const BpeModel& model, AddedTokens::Special special)
      : added_(added), normalizer_(normalizer), pre_(pre), model_(model), special_(special) {}

  void Add(const TracedText& text) {
    for (const AddedTokens::Part& part : added_.Cut(text, AddedTokens::Stage::kRaw, special_)) {
      if (part.token != nullptr) {
        ids_.push_back(part.token->id);
        continue;
      }
      TracedText piece = text.Slice(part.begin, part.end);
      normalizer_.Apply(&piece);
      AddNormalized(piece, part.begin == 0 ? PieceOrigin::kTextBegin : PieceOrigin::kInside);
    }
  }

  std::vector<Token>& ids() { return ids_; }

 private:
  void AddNormalized(const TracedText& text, PieceOrigin origin) {
    for (const AddedTokens::Part& part :
         added_.Cut(text, AddedTokens::Stage::kNormalized, special_)) {
      if (part.token != nullptr) {
        ids_.push_back(part.token->id);
      } else {
        AddWords(text.bytes.substr(part.begin, part.end - part.begin),
                 part.begin == 0 ? origin : PieceOrigin::kInside);
      }
    }
  }

  void AddWords(std::string text, PieceOrigin origin) {
    PieceList list(std::move(text), origin);
    pre_.Apply(&list);
    for (const Piece& piece : list.pieces) model_.Encode(list.View(piece), &scratch_, &ids_);
  }

  const AddedTokens& added_;
  const Normalizer& normalizer_;
  const PreTokenizer& pre_;
  const BpeModel& model_;
  const AddedTokens::Special special_;
  BpeModel::Scratch scratch_;
  std::vector<Token> ids_;
};

}  // namespace

std::optional<std::string_view> Tokenizer::Parts::DecoderText(Token id) const {
  // The reference decodes a normalized token from its normalized form, so that the decoder can undo
  // what the normalizer did.
  if (const AddedToken* token = added.Find(id); token != nullptr) return token->normalized;
  return model.vocabulary().Text(id);
}

Tokenizer::Tokenizer(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<const Tokenizer>> Tokenizer::FromJson(const Json& json,
                                                             const TokenizerOptions& options) {
  if (!json.is_object()) {
    return {ErrorCode::kCorrupt,
            "tokenizer.json must be an object, not " + std::string(json.type_name())};
  }
  KVASIR_TRY(const std::string version, json.GetStringOr("version", "1.0"));
  if (version != "1.0") {
    return {ErrorCode::kUnsupported, "field 'version' is '" + version + "'; supported is 1.0"};
  }
  const Json* model_json = json.Find("model");
  if (model_json == nullptr) return {ErrorCode::kCorrupt, "field 'model' is missing"};
  KVASIR_TRY(auto normalizer,
             In("normalizer", Normalizer::FromJson(MemberOrNull(json, "normalizer"))));
  KVASIR_TRY(auto pre_tokenizer,
             In("pre_tokenizer", PreTokenizer::FromJson(MemberOrNull(json, "pre_tokenizer"))));
  KVASIR_TRY(BpeModel model, In("model", BpeModel::FromJson(*model_json)));
  KVASIR_TRY(AddedTokens added,
             AddedTokens::FromJson(json.Find("added_tokens"), model.vocabulary(), *normalizer));
  model.KeepFromWords(added.Markers());
  const int64_t id_end = std::max(model.vocabulary().id_end(), added.id_end());
  KVASIR_TRY(
      PostProcessor post_processor,
      In("post_processor", PostProcessor::FromJson(MemberOrNull(json, "post_processor"), id_end)));
  KVASIR_TRY(Decoder decoder, In("decoder", Decoder::FromJson(MemberOrNull(json, "decoder"))));
  auto parts = std::make_unique<Parts>(Parts{std::move(normalizer), std::move(pre_tokenizer),
                                             std::move(model), std::move(added),
                                             std::move(post_processor), std::move(decoder)});
  Parts& made = *parts;
  auto tokenizer = std::unique_ptr<const Tokenizer>(new Tokenizer(std::move(parts)));
  if (made.post_processor.prefix.empty() && !options.begin_token.empty()) {
    made.begin = tokenizer->TokenToId(options.begin_token);
  }
  return tokenizer;
}

Result<std::unique_ptr<const Tokenizer>> Tokenizer::FromFile(const std::string& path,
                                                             const TokenizerOptions& options) {
  constexpr size_t kMostBytes = size_t{256} << 20;  // those of Gemma have 33 MB
  KVASIR_TRY(const Json json, Json::ParseFile(path, kMostBytes));
  return In(path, FromJson(json, options));
}

std::vector<Token> Tokenizer::Encode(std::string_view text, const EncodeOptions& options) const {
  return EncodeSegments({{std::string(text), true}}, options);
}

std::vector<Token> Tokenizer::EncodeSegments(const TextSegments& segments,
                                             const EncodeOptions& options) const {
  Encoding encoding(
      parts_->added, *parts_->normalizer, *parts_->pre_tokenizer, parts_->model,
      options.parse_special ? AddedTokens::Special::kParse : AddedTokens::Special::kAsText);
  const PostProcessor& post = parts_->post_processor;
  if (options.add_special) encoding.ids() = post.prefix;
  encoding.Add(Concatenate(segments));
  std::vector<Token> ids = std::move(encoding.ids());
  if (!options.add_special) return ids;
  const std::optional<Token> begin = parts_->begin;
  if (begin && (ids.empty() || ids.front() != *begin)) ids.insert(ids.begin(), *begin);
  ids.insert(ids.end(), post.suffix.begin(), post.suffix.end());
  return ids;
}

std::string Tokenizer::Decode(std::span<const Token> tokens, const DecodeOptions& options) const {
  std::vector<std::string> texts;
  texts.reserve(tokens.size());
  for (const Token id : tokens) {
    const std::optional<std::string_view> text = parts_->DecoderText(id);
    if (!text.has_value() || (options.skip_special && IsSpecial(id))) continue;
    texts.emplace_back(*text);
  }
  return parts_->decoder.Decode(std::move(texts));
}

int64_t Tokenizer::vocab_size() const {
  return std::max(parts_->model.vocabulary().id_end(), parts_->added.id_end());
}

std::optional<Token> Tokenizer::TokenToId(std::string_view content) const {
  if (const AddedToken* token = parts_->added.Find(content); token != nullptr) return token->id;
  return parts_->model.vocabulary().Find(content);
}

std::string Tokenizer::TokenText(Token id) const {
  if (const AddedToken* token = parts_->added.Find(id); token != nullptr) return token->content;
  return std::string(parts_->model.vocabulary().Text(id).value_or(""));
}

std::string Tokenizer::TokenBytes(Token id) const {
  const std::optional<std::string_view> text = parts_->DecoderText(id);
  if (!text.has_value() || IsSpecial(id)) return "";
  return parts_->decoder.PieceOf(*text, Decoder::Place::kMiddle).bytes;
}

bool Tokenizer::IsAdded(Token id) const { return parts_->added.Find(id) != nullptr; }

bool Tokenizer::IsSpecial(Token id) const {
  const AddedToken* token = parts_->added.Find(id);
  return token != nullptr && token->is_special;
}

}  // namespace kvasir
