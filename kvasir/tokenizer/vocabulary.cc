#include "kvasir/tokenizer/vocabulary.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "kvasir/tokenizer/utf8.h"

namespace kvasir {
namespace {

size_t HashOf(std::string_view text) { return std::hash<std::string_view>()(text); }

Error BadEntry(std::string_view text, std::string_view problem) {
  constexpr size_t kShownBytes = 60;
  return {ErrorCode::kCorrupt,
          "vocab entry '" + ToValidUtf8(text.substr(0, kShownBytes)) + "' " + std::string(problem)};
}

}  // namespace

int64_t MaxTokenId(size_t entries) {
  constexpr int64_t kUnusedIds = int64_t{1} << 20;
  return std::min<int64_t>(kUnusedIds + 4 * static_cast<int64_t>(entries),
                           std::numeric_limits<Token>::max() - 1);
}

Result<Vocabulary> Vocabulary::FromJson(const Json& json) {
  if (!json.is_object()) {
    return {ErrorCode::kCorrupt,
            "field 'vocab' must be an object, not " + std::string(json.type_name())};
  }
  const Json::Object& members = json.as_object();
  const int64_t max_id = MaxTokenId(members.size());
  int64_t largest_id = -1;
  size_t text_bytes = 0;
  for (const auto& [text, value] : members) {
    if (!value.is_int()) {
      return BadEntry(text, "must be an integer id, not " + std::string(value.type_name()));
    }
    if (value.as_int() < 0 || value.as_int() > max_id) {
      return BadEntry(text, "has the id " + std::to_string(value.as_int()) + ", outside 0 to " +
                                std::to_string(max_id));
    }
    largest_id = std::max(largest_id, value.as_int());
    text_bytes += text.size();
  }
  if (text_bytes > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
    return {ErrorCode::kUnsupported, "field 'vocab' has more than 2 GiB of text"};
  }
  Vocabulary vocabulary;
  vocabulary.texts_.reserve(text_bytes);
  vocabulary.spans_.resize(static_cast<size_t>(largest_id + 1));
  vocabulary.slots_.resize(std::bit_ceil(2 * members.size() + 1));
  for (const auto& [text, value] : members) {
    vocabulary.Insert(text, static_cast<Token>(value.as_int()));
  }
  vocabulary.entries_ = members.size();
  return vocabulary;
}

void Vocabulary::Insert(std::string_view text, Token id) {
  const auto begin = static_cast<uint32_t>(texts_.size());
  const auto size = static_cast<int32_t>(text.size());
  texts_ += text;
  spans_[static_cast<size_t>(id)] = {begin, size};
  const size_t mask = slots_.size() - 1;
  size_t slot = HashOf(text) & mask;
  while (slots_[slot].size >= 0) slot = (slot + 1) & mask;
  slots_[slot] = {begin, size, id};
}

std::optional<Token> Vocabulary::Find(std::string_view text) const {
  if (slots_.empty()) return std::nullopt;
  const size_t mask = slots_.size() - 1;
  for (size_t slot = HashOf(text) & mask; slots_[slot].size >= 0; slot = (slot + 1) & mask) {
    if (TextAt(slots_[slot].begin, slots_[slot].size) == text) return slots_[slot].id;
  }
  return std::nullopt;
}

std::optional<std::string_view> Vocabulary::Text(Token id) const {
  if (id < 0 || id >= id_end()) return std::nullopt;
  const Span span = spans_[static_cast<size_t>(id)];
  if (span.size < 0) return std::nullopt;
  return TextAt(span.begin, span.size);
}

}  // namespace kvasir
