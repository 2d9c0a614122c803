#include "kvasir/tokenizer/added_tokens.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "kvasir/tokenizer/unicode.h"
#include "kvasir/tokenizer/utf8.h"

namespace kvasir {
namespace {

// Bounds the work per byte of text. The longest in published tokenizers has 93 bytes.
constexpr size_t kMaxContentBytes = 1024;

bool IsMarkup(std::string_view content) {
  return (content.starts_with('<') && content.ends_with('>')) ||
         (content.starts_with('[') && content.ends_with(']'));
}

Result<AddedToken> ReadToken(const Json& json, int64_t max_id) {
  if (!json.is_object()) {
    return {ErrorCode::kCorrupt, "must be an object, not " + std::string(json.type_name())};
  }
  AddedToken token;
  KVASIR_TRY(token.content, json.GetString("content"));
  KVASIR_TRY(const int64_t id, json.GetInt("id"));
  if (id < 0 || id > max_id) {
    return {ErrorCode::kCorrupt,
            "field 'id' is " + std::to_string(id) + ", outside 0 to " + std::to_string(max_id)};
  }
  token.id = static_cast<Token>(id);
  if (token.content.size() > kMaxContentBytes) {
    return {ErrorCode::kUnsupported,
            "field 'content' is longer than " + std::to_string(kMaxContentBytes) + " bytes"};
  }
  KVASIR_TRY(token.is_special, json.GetBoolOr("special", false));
  KVASIR_TRY(token.is_single_word, json.GetBoolOr("single_word", false));
  KVASIR_TRY(token.strips_left, json.GetBoolOr("lstrip", false));
  KVASIR_TRY(token.strips_right, json.GetBoolOr("rstrip", false));
  KVASIR_TRY(token.is_normalized, json.GetBoolOr("normalized", !token.is_special));
  token.is_marker = token.is_special || IsMarkup(token.content);
  token.normalized = token.content;
  return token;
}

bool IsBetweenNonWords(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && IsWordCharacter(DecodeUtf8(text, PreviousUtf8(text, begin)).code)) return false;
  return end == text.size() || !IsWordCharacter(DecodeUtf8(text, end).code);
}

size_t SpacesBegin(std::string_view text, size_t end, size_t limit) {
  while (end > limit) {
    const size_t previous = PreviousUtf8(text, end);
    if (previous < limit || !IsWhitespace(DecodeUtf8(text, previous).code)) break;
    end = previous;
  }
  return end;
}

size_t SpacesEnd(std::string_view text, size_t begin) {
  while (begin < text.size()) {
    const Utf8Char character = DecodeUtf8(text, begin);
    if (!IsWhitespace(character.code)) break;
    begin += character.size_bytes;
  }
  return begin;
}

}  // namespace

Result<AddedTokens> AddedTokens::FromJson(const Json* json, const Vocabulary& vocabulary,
                                          const Normalizer& normalizer) {
  AddedTokens added;
  if (json == nullptr || json->is_null()) return added;
  if (!json->is_array()) {
    return {ErrorCode::kCorrupt,
            "field 'added_tokens' must be an array, not " + std::string(json->type_name())};
  }
  const Json::Array& entries = json->as_array();
  const int64_t max_id = MaxTokenId(vocabulary.entries() + entries.size());
  for (size_t i = 0; i < entries.size(); ++i) {
    Result<AddedToken> token = ReadToken(entries[i], max_id);
    Status status = token.status();
    if (token.ok() && !token->content.empty()) {
      token->id = vocabulary.Find(token->content).value_or(token->id);
      if (token->is_normalized) {
        TracedText text;
        text.bytes = token->content;
        normalizer.Apply(&text);
        token->normalized = std::move(text.bytes);
      }
      status = added.Add(std::move(*token));
    }
    if (!status.ok()) {
      return WithContext(status.error(), "added_tokens[" + std::to_string(i) + "]");
    }
  }
  return added;
}

Status AddedTokens::Add(AddedToken token) {
  if (const auto known = by_id_.find(token.id);
      known != by_id_.end() && tokens_[known->second].content != token.content) {
    return {ErrorCode::kCorrupt, "'" + token.content + "' has the id " + std::to_string(token.id) +
                                     " of '" + tokens_[known->second].content + "'"};
  }
  const size_t index = tokens_.size();
  id_end_ = std::max(id_end_, static_cast<int64_t>(token.id) + 1);
  by_id_[token.id] = index;
  by_content_[token.content] = index;
  // A normalizer may leave nothing of the content, which then cannot be found.
  if (!token.normalized.empty()) {
    (token.is_normalized ? normalized_ : raw_).Insert(token.normalized, index);
  }
  tokens_.push_back(std::move(token));
  return {};
}

const AddedToken* AddedTokens::LongestMatch(const TracedText& text, size_t position, Stage stage,
                                            Special special) const {
  const ByteTrie& trie = stage == Stage::kRaw ? raw_ : normalized_;
  const AddedToken* longest = nullptr;
  trie.ForEachAt(text.bytes, position, [&](size_t index, size_t size_bytes) {
    const AddedToken& token = tokens_[index];
    if (token.is_special && special == Special::kAsText) return;
    if (token.is_marker && !text.IsTrusted(position, position + size_bytes)) return;
    longest = &token;
  });
  return longest;
}

std::vector<AddedTokens::Part> AddedTokens::Cut(const TracedText& text, Stage stage,
                                                Special special) const {
  const std::string_view bytes = text.bytes;
  std::vector<Part> parts;
  size_t text_begin = 0;  // of the text since the last token
  // The white space last swallowed to the right, so that a row of such tokens stays linear.
  size_t spaces_begin = 0;
  size_t spaces_end = 0;
  for (size_t position = 0; position < bytes.size();) {
    const AddedToken* token = LongestMatch(text, position, stage, special);
    if (token == nullptr) {
      ++position;
      continue;
    }
    size_t begin = position;
    size_t end = position + token->normalized.size();
    position = end;
    if (token->is_single_word && !IsBetweenNonWords(bytes, begin, end)) continue;
    if (token->strips_left) begin = std::max(SpacesBegin(bytes, begin, text_begin), text_begin);
    if (token->strips_right) {
      if (end < spaces_begin || end > spaces_end) {
        spaces_begin = end;
        spaces_end = SpacesEnd(bytes, end);
      }
      end = spaces_end;
    }
    if (text_begin < begin) parts.push_back({text_begin, begin, nullptr});
    // The token before may have swallowed all of this one, which then disappears.
    if (begin < end) parts.push_back({begin, end, token});
    text_begin = end;
  }
  if (text_begin < bytes.size()) parts.push_back({text_begin, bytes.size(), nullptr});
  return parts;
}

const AddedToken* AddedTokens::Find(Token id) const {
  const auto found = by_id_.find(id);
  return found == by_id_.end() ? nullptr : &tokens_[found->second];
}

const AddedToken* AddedTokens::Find(std::string_view content) const {
  const auto found = by_content_.find(std::string(content));
  return found == by_content_.end() ? nullptr : &tokens_[found->second];
}

std::vector<Token> AddedTokens::Markers() const {
  std::vector<Token> markers;
  for (const AddedToken& token : tokens_) {
    if (token.is_marker) markers.push_back(token.id);
  }
  return markers;
}

}  // namespace kvasir
