#include "kvasir/tokenizer/bpe_model.h"

#include <algorithm>
#include <utility>

#include "kvasir/tokenizer/component_json.h"
#include "kvasir/tokenizer/utf8.h"

namespace kvasir {
namespace {

Error Corrupt(std::string message) { return {ErrorCode::kCorrupt, std::move(message)}; }

std::string ByteTokenText(size_t byte) {
  static constexpr std::string_view kDigits = "0123456789ABCDEF";
  return {'<', '0', 'x', kDigits[byte >> 4], kDigits[byte & 15], '>'};
}

// The two sides of a merge, written as "left right" or as ["left", "right"].
Result<std::pair<std::string_view, std::string_view>> MergeSides(const Json& merge) {
  if (merge.is_string()) {
    const std::string_view text = merge.as_string();
    const size_t space = text.find(' ');
    if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos) {
      return Corrupt("must be two tokens with one space between them");
    }
    return std::pair(text.substr(0, space), text.substr(space + 1));
  }
  if (merge.is_array()) {
    const Json::Array& sides = merge.as_array();
    if (sides.size() != 2 || !sides[0].is_string() || !sides[1].is_string()) {
      return Corrupt("must be an array of two strings");
    }
    return std::pair<std::string_view, std::string_view>(sides[0].as_string(),
                                                         sides[1].as_string());
  }
  return Corrupt("must be a string or an array, not " + std::string(merge.type_name()));
}

}  // namespace

Result<BpeModel> BpeModel::FromJson(const Json& json) {
  if (!json.is_object()) {
    return Corrupt("must be an object, not " + std::string(json.type_name()));
  }
  // Files of 2019 and 2020 have no type; their models are told apart by having merges.
  KVASIR_TRY(const std::string type, json.GetStringOr("type", "BPE"));
  if (type != "BPE") return UnsupportedType(type, "BPE");
  const Json* vocabulary = json.Find("vocab");
  if (vocabulary == nullptr) return Corrupt("field 'vocab' is missing");
  const Json* merges = json.Find("merges");
  if (merges == nullptr) return Corrupt("field 'merges' is missing");
  BpeModel model;
  KVASIR_TRY(model.vocabulary_, Vocabulary::FromJson(*vocabulary));
  model.IndexCharacters();
  KVASIR_TRY_OK(model.ReadFlags(json));
  KVASIR_TRY_OK(model.ReadMerges(*merges));
  return model;
}

Status BpeModel::ReadFlags(const Json& json) {
  // Dropout is only for training; reading it finds a wrong type, and its value is not used.
  KVASIR_TRY(const double dropout, json.GetDoubleOr("dropout", 0.0));
  if (!(dropout >= 0.0 && dropout <= 1.0)) return Corrupt("field 'dropout' must be from 0 to 1");
  KVASIR_TRY(subword_prefix_, json.GetStringOr("continuing_subword_prefix", ""));
  KVASIR_TRY(word_suffix_, json.GetStringOr("end_of_word_suffix", ""));
  KVASIR_TRY(fuse_unknown_, json.GetBoolOr("fuse_unk", false));
  KVASIR_TRY(byte_fallback_, json.GetBoolOr("byte_fallback", false));
  KVASIR_TRY(ignore_merges_, json.GetBoolOr("ignore_merges", false));
  KVASIR_TRY(const std::string unknown, json.GetStringOr("unk_token", ""));
  // An unk_token outside the vocabulary is common in byte-level files, which never need one.
  unknown_ = vocabulary_.Find(unknown);
  return {};
}

void BpeModel::IndexCharacters() {
  for (size_t byte = 0; byte < byte_tokens_.size(); ++byte) {
    byte_tokens_[byte] = vocabulary_.Find(ByteTokenText(byte)).value_or(-1);
  }
  for (char32_t code = 0; code < kIndexedCharacters; ++code) {
    std::string character;
    AppendUtf8(code, &character);
    characters_[code] = vocabulary_.Find(character).value_or(-1);
  }
}

Status BpeModel::ReadMerges(const Json& merges) {
  if (!merges.is_array()) {
    return Corrupt("field 'merges' must be an array, not " + std::string(merges.type_name()));
  }
  merges_ = MergeTable(merges.as_array().size());
  uint32_t rank = 0;
  for (size_t i = 0; i < merges.as_array().size(); ++i) {
    const Json& merge = merges.as_array()[i];
    // The header line of merges.txt, which some converters carried over.
    if (merge.is_string() && merge.as_string().starts_with("#version")) continue;
    const auto sides = MergeSides(merge);
    Status status = sides.status();
    if (sides.ok()) status = AddMerge(sides->first, sides->second, rank++);
    if (!status.ok()) {
      return WithContext(status.error(), "merges[" + std::to_string(i) + "]");
    }
  }
  return {};
}

Status BpeModel::AddMerge(std::string_view left, std::string_view right, uint32_t rank) {
  const auto missing = [](std::string_view text) {
    return Corrupt(std::string("'").append(text.substr(0, 60)).append("' is not in the vocab"));
  };
  const std::optional<Token> left_id = vocabulary_.Find(left);
  if (!left_id.has_value()) return missing(left);
  const std::optional<Token> right_id = vocabulary_.Find(right);
  if (!right_id.has_value()) return missing(right);
  if (right.size() < subword_prefix_.size()) {
    return Corrupt(
        std::string("'").append(right).append("' is shorter than continuing_subword_prefix"));
  }
  const std::string merged = std::string(left).append(right.substr(subword_prefix_.size()));
  const std::optional<Token> merged_id = vocabulary_.Find(merged);
  if (!merged_id.has_value()) return missing(merged);
  merges_.Insert(*left_id, *right_id, {rank, *merged_id});
  return {};
}

void BpeModel::KeepFromWords(const std::vector<Token>& tokens) {
  never_words_ = tokens;
  std::sort(never_words_.begin(), never_words_.end());
}

void BpeModel::Encode(std::string_view word, Scratch* scratch, std::vector<Token>* ids) const {
  if (word.empty()) return;
  if (ignore_merges_) {
    const std::optional<Token> id = vocabulary_.Find(word);
    if (id && !std::binary_search(never_words_.begin(), never_words_.end(), *id)) {
      ids->push_back(*id);
      return;
    }
  }
  scratch->symbols_.clear();
  SplitIntoSymbols(word, scratch);
  MergeSymbols(scratch);
  for (const Scratch::Symbol& symbol : scratch->symbols_) {
    if (symbol.alive) ids->push_back(symbol.id);
  }
}

std::optional<Token> BpeModel::FindCharacter(std::string_view character) const {
  const Utf8Char decoded = DecodeUtf8(character, 0);
  if (decoded.size_bytes == character.size() && decoded.code < kIndexedCharacters) {
    const Token id = characters_[decoded.code];
    return id < 0 ? std::nullopt : std::optional<Token>(id);
  }
  return vocabulary_.Find(character);
}

void BpeModel::SplitIntoSymbols(std::string_view word, Scratch* scratch) const {
  std::string affixed;
  // An unknown character waits here: the reference emits it in front of the next known one, even
  // when byte tokens came in between.
  bool pending_unknown = false;
  for (size_t begin = 0; begin < word.size();) {
    const size_t end = begin + DecodeUtf8(word, begin).size_bytes;
    std::string_view character = word.substr(begin, end - begin);
    const bool prefixed = begin > 0 && !subword_prefix_.empty();
    const bool suffixed = end == word.size() && !word_suffix_.empty();
    if (prefixed || suffixed) {
      affixed.clear();
      if (prefixed) affixed += subword_prefix_;
      affixed += character;
      if (suffixed) affixed += word_suffix_;
      character = affixed;
    }
    begin = end;
    if (const std::optional<Token> id = FindCharacter(character); id.has_value()) {
      if (pending_unknown) AppendSymbol(*unknown_, scratch);
      pending_unknown = false;
      AppendSymbol(*id, scratch);
      continue;
    }
    if (byte_fallback_ && AppendBytes(character, scratch)) continue;
    if (!unknown_.has_value()) continue;
    if (pending_unknown && !fuse_unknown_) AppendSymbol(*unknown_, scratch);
    pending_unknown = true;
  }
  if (pending_unknown) AppendSymbol(*unknown_, scratch);
}

bool BpeModel::AppendBytes(std::string_view text, Scratch* scratch) const {
  for (const char byte : text) {
    if (byte_tokens_[static_cast<uint8_t>(byte)] < 0) return false;
  }
  for (const char byte : text) AppendSymbol(byte_tokens_[static_cast<uint8_t>(byte)], scratch);
  return true;
}

void BpeModel::AppendSymbol(Token id, Scratch* scratch) {
  const auto index = static_cast<int32_t>(scratch->symbols_.size());
  if (index > 0) scratch->symbols_.back().next = index;
  scratch->symbols_.push_back({id, index - 1, -1, true});
}

void BpeModel::PushCandidate(int32_t position, Scratch* scratch) const {
  const auto& symbols = scratch->symbols_;
  const Scratch::Symbol& left = symbols[static_cast<size_t>(position)];
  if (left.next < 0) return;
  const Merge* merge = merges_.Find(left.id, symbols[static_cast<size_t>(left.next)].id);
  if (merge == nullptr) return;
  scratch->heap_.push_back(
      {static_cast<uint64_t>(merge->rank) << 32 | static_cast<uint32_t>(position), merge->result});
}

void BpeModel::MergeSymbols(Scratch* scratch) const {
  const auto later = [](const Scratch::Candidate& a, const Scratch::Candidate& b) {
    return a.order > b.order;
  };
  auto& symbols = scratch->symbols_;
  auto& heap = scratch->heap_;
  heap.clear();
  for (size_t i = 0; i + 1 < symbols.size(); ++i) PushCandidate(static_cast<int32_t>(i), scratch);
  std::make_heap(heap.begin(), heap.end(), later);
  const auto push = [&](int32_t position) {
    const size_t size = heap.size();
    PushCandidate(position, scratch);
    if (heap.size() > size) std::push_heap(heap.begin(), heap.end(), later);
  };
  while (!heap.empty()) {
    const Scratch::Candidate best = heap.front();
    std::pop_heap(heap.begin(), heap.end(), later);
    heap.pop_back();
    const auto position = static_cast<int32_t>(best.order & 0xFFFFFFFFu);
    Scratch::Symbol& left = symbols[static_cast<size_t>(position)];
    if (!left.alive || left.next < 0) continue;
    Scratch::Symbol& right = symbols[static_cast<size_t>(left.next)];
    // Older merges may have changed either side; the candidate counts while the result is the same.
    const Merge* merge = merges_.Find(left.id, right.id);
    if (merge == nullptr || merge->result != best.result) continue;
    left.id = best.result;
    left.next = right.next;
    right.alive = false;
    if (right.next >= 0) symbols[static_cast<size_t>(right.next)].previous = position;
    if (left.previous >= 0) push(left.previous);
    push(position);
  }
}

}  // namespace kvasir
