#include "kvasir/formats/gguf_tokenizer.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kvasir/formats/gguf_pre_tokenizer.h"
#include "kvasir/formats/gguf_special_tokens.h"
#include "kvasir/formats/utf8_check.h"

namespace kvasir {
namespace {

constexpr std::string_view kBlank = "\u2581";  // SentencePiece's space
// The longest in published vocabularies has 93 bytes. A merge is made for every place where a
// piece can be cut, so this bounds the work.
constexpr size_t kMaxPieceBytes = 512;
// Gemma's 262,144 pieces make 580,000 merges. The bound is on what a small file can ask for.
constexpr size_t kMaxMerges = size_t{1} << 21;
constexpr size_t kMaxMergeBytes = size_t{64} << 20;

struct Vocabulary {
  std::vector<std::string_view> tokens;
  std::vector<int64_t> kinds;  // GgufTokenKind, as many as tokens
  GgufSpecialTokens special;

  GgufTokenKind kind(size_t id) const { return static_cast<GgufTokenKind>(kinds[id]); }
};

Error Corrupt(std::string message) { return {ErrorCode::kCorrupt, std::move(message)}; }

Result<Vocabulary> ReadVocabulary(const GgufMetadata& metadata) {
  Vocabulary vocabulary;
  KVASIR_TRY(vocabulary.tokens, metadata.Strings("tokenizer.ggml.tokens"));
  KVASIR_TRY(vocabulary.kinds, metadata.Ints("tokenizer.ggml.token_type"));
  if (vocabulary.tokens.empty()) return Corrupt("metadata 'tokenizer.ggml.tokens' is missing");
  if (vocabulary.kinds.empty()) vocabulary.kinds.assign(vocabulary.tokens.size(), 1);
  if (vocabulary.kinds.size() != vocabulary.tokens.size()) {
    return Corrupt("metadata 'tokenizer.ggml.token_type' must have as many elements as the tokens");
  }
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (!IsValidUtf8(vocabulary.tokens[id])) {
      return Corrupt("metadata 'tokenizer.ggml.tokens': token " + std::to_string(id) +
                     " is no valid UTF-8");
    }
  }
  KVASIR_TRY(const std::string architecture, metadata.TextOr("general.architecture", ""));
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    vocabulary.kinds[id] =
        static_cast<int64_t>(GgufKindOf(vocabulary.tokens[id], vocabulary.kinds[id], architecture));
  }
  KVASIR_TRY(vocabulary.special, GgufSpecialTokens::Read(metadata));
  return vocabulary;
}

// Rows of the embedding that no token uses; converters give them names like "[PAD151669]".
bool IsPadding(const Vocabulary& vocabulary, size_t id) {
  return vocabulary.kind(id) == GgufTokenKind::kUnused && vocabulary.tokens[id].starts_with("[PAD");
}

// Texts of all tokens with their ids; of tokens of one text the last, as in a tokenizer.json. Added
// tokens are among them: other readers number those that are not from the vocabulary's end on.
Json::Object Entries(const Vocabulary& vocabulary) {
  Json::Object entries;
  std::unordered_map<std::string_view, size_t> known;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (IsPadding(vocabulary, id)) continue;
    const std::string_view text = vocabulary.tokens[id];
    const auto [at, is_new] = known.emplace(text, entries.size());
    if (is_new) entries.emplace_back(text, Json());
    entries[at->second].second = static_cast<int64_t>(id);
  }
  return entries;
}

Json AddedTokens(const Vocabulary& vocabulary) {
  Json::Array added;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const GgufTokenKind kind = vocabulary.kind(id);
    const bool is_special = kind == GgufTokenKind::kControl || kind == GgufTokenKind::kUnknown;
    if (!is_special && kind != GgufTokenKind::kUserDefined) continue;
    added.push_back(Json::Object{{"id", static_cast<int64_t>(id)},
                                 {"content", vocabulary.tokens[id]},
                                 {"single_word", false},
                                 {"lstrip", false},
                                 {"rstrip", false},
                                 {"normalized", false},
                                 {"special", is_special}});
  }
  return added;
}

Json SpecialToken(std::string_view text, int64_t type) {
  return Json::Object{{"SpecialToken", Json::Object{{"id", text}, {"type_id", type}}}};
}

// Whether BOS is added; the first two unless the file says otherwise.
enum class Bos { kYes, kNo, kAlways };

// Null when neither is added.
Result<Json> PostProcessor(const GgufMetadata& metadata, const Vocabulary& vocabulary, Bos bos) {
  KVASIR_TRY(bool adds_bos, metadata.FlagOr("tokenizer.ggml.add_bos_token", bos == Bos::kYes));
  adds_bos |= bos == Bos::kAlways;
  KVASIR_TRY(const bool adds_eos, metadata.FlagOr("tokenizer.ggml.add_eos_token", false));
  Json::Array one;
  Json::Array pair;  // of which only the first has type 0
  Json tokens = Json::Object();
  const auto add_text = [&](Json::Array* texts, std::string_view name, int64_t type) {
    texts->push_back(Json::Object{{"Sequence", Json::Object{{"id", name}, {"type_id", type}}}});
  };
  const auto add = [&](Json::Array* texts, bool wanted, std::optional<Token> id, int64_t type) {
    if (!wanted || !id) return;
    const std::string_view text = vocabulary.tokens[static_cast<size_t>(*id)];
    texts->push_back(SpecialToken(text, type));
    tokens.Set(text, Json::Object{{"id", text},
                                  {"ids", Json::Array{Json(int64_t{*id})}},
                                  {"tokens", Json::Array{Json(text)}}});
  };
  const GgufSpecialTokens& special = vocabulary.special;
  add(&one, adds_bos, special.bos, 0);
  add_text(&one, "A", 0);
  add(&one, adds_eos, special.eos, 0);
  if (one.size() == 1) return Json();
  pair = one;
  add(&pair, adds_bos, special.bos, 1);
  add_text(&pair, "B", 1);
  add(&pair, adds_eos, special.eos, 1);
  return Json(Json::Object{{"type", "TemplateProcessing"},
                           {"single", std::move(one)},
                           {"pair", std::move(pair)},
                           {"special_tokens", std::move(tokens)}});
}

// tokenizer.json of a "BPE" model. Hundreds of thousands of entries and merges are moved, which
// lists in braces would copy.
Json WithModel(Json tokenizer, Json model, Json::Object entries, Json merges) {
  model.Set("vocab", std::move(entries));
  model.Set("merges", std::move(merges));
  tokenizer.Set("model", std::move(model));
  return tokenizer;
}

Json Sequence(std::string_view member, Json::Array parts) {
  return Json::Object{{"type", "Sequence"}, {std::string(member), std::move(parts)}};
}

Json Replace(std::string_view from, std::string_view to) {
  return Json::Object{
      {"type", "Replace"}, {"pattern", Json::Object{{"String", from}}}, {"content", to}};
}

size_t Characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

// A vocabulary of single characters needs none; with others, words would silently become single
// characters without them.
Result<std::vector<std::string_view>> ReadMerges(const GgufMetadata& metadata,
                                                 const Vocabulary& vocabulary) {
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    if (metadata.Has("tokenizer.ggml.merges")) break;
    if (vocabulary.kind(id) == GgufTokenKind::kNormal && Characters(vocabulary.tokens[id]) > 1) {
      return Corrupt("metadata 'tokenizer.ggml.merges' is missing, and token " +
                     std::to_string(id) + " is made by merging");
    }
  }
  return metadata.Strings("tokenizer.ggml.merges");
}

Result<Json> ByteLevelMerges(const GgufMetadata& metadata, const Vocabulary& vocabulary) {
  KVASIR_TRY(const auto merges, ReadMerges(metadata, vocabulary));
  Json::Array out;
  for (size_t i = 0; i < merges.size(); ++i) {
    if (!IsValidUtf8(merges[i])) {
      return Corrupt("metadata 'tokenizer.ggml.merges': merge " + std::to_string(i) +
                     " is no valid UTF-8");
    }
    out.push_back(Json(merges[i]));
  }
  return Json(std::move(out));
}

Result<Json> ByteLevel(const GgufMetadata& metadata) {
  KVASIR_TRY(const Vocabulary vocabulary, ReadVocabulary(metadata));
  KVASIR_TRY(const std::string name, GgufPreTokenizerName(metadata));
  const GgufPreTokenizer* pre = FindGgufPreTokenizer(name);
  if (pre == nullptr) {
    return {ErrorCode::kUnsupported, "metadata 'tokenizer.ggml.pre' is '" + name.substr(0, 40) +
                                         "', a pre-tokenizer that is not known here"};
  }
  Json::Object entries = Entries(vocabulary);
  KVASIR_TRY(Json merges, ByteLevelMerges(metadata, vocabulary));
  KVASIR_TRY(Json post, PostProcessor(metadata, vocabulary, pre->adds_bos ? Bos::kYes : Bos::kNo));
  Json::Array cuts;
  for (const std::string_view pattern : pre->patterns) {
    cuts.push_back(Json::Object{{"type", "Split"},
                                {"pattern", Json::Object{{"Regex", pattern}}},
                                {"behavior", "Isolated"},
                                {"invert", false}});
  }
  const Json byte_level = Json::Object{{"type", "ByteLevel"},
                                       {"add_prefix_space", false},
                                       {"trim_offsets", false},
                                       {"use_regex", false}};
  cuts.push_back(byte_level);
  return WithModel(
      Json::Object{{"version", "1.0"},
                   {"added_tokens", AddedTokens(vocabulary)},
                   {"normalizer", pre->normalizes ? Json(Json::Object{{"type", "NFC"}}) : Json()},
                   {"pre_tokenizer", Sequence("pretokenizers", std::move(cuts))},
                   {"post_processor", std::move(post)},
                   {"decoder", byte_level}},
      Json::Object{{"type", "BPE"}, {"ignore_merges", pre->ignores_merges}}, std::move(entries),
      std::move(merges));
}

// As one string, which takes a fifth of the memory of an array, unless it would be read otherwise.
Json Merge(std::string_view left, std::string_view right) {
  const auto has_blank = [](std::string_view text) { return text.find(' ') != text.npos; };
  if (has_blank(left) || has_blank(right) || left.starts_with("#version")) {
    return Json::Array{Json(left), Json(right)};
  }
  std::string merge;
  merge.reserve(left.size() + 1 + right.size());
  return Json(merge.append(left).append(1, ' ').append(right));
}

// A set of texts whose members among a text's beginnings and ends are found without hashing each
// anew: sum of byte i * base^i, so that one byte more at either end is one step. The base is
// another one in every process, so that no file can be made for its texts to collide. Texts are
// borrowed.
class PieceSet {
 public:
  explicit PieceSet(size_t most) : slots_(std::bit_ceil(2 * most + 2)) {
    std::random_device random;
    base_ = uint64_t{random()} << 32 | random() | 1;
  }

  uint64_t base() const { return base_; }
  // False if it is there already. At most `most` texts.
  bool Insert(std::string_view text) {
    uint64_t hash = 0;
    for (size_t i = text.size(); i > 0; --i)
      hash = static_cast<uint8_t>(text[i - 1]) + base_ * hash;
    Slot& slot = slots_[At(text, hash)];
    if (slot.text.data() != nullptr) return false;
    slot = {hash, text};
    return true;
  }
  bool Contains(std::string_view text, uint64_t hash) const {
    return slots_[At(text, hash)].text.data() != nullptr;
  }

 private:
  struct Slot {
    uint64_t hash = 0;
    std::string_view text;
  };
  // Where it is, or the free slot where it would be.
  size_t At(std::string_view text, uint64_t hash) const {
    const size_t mask = slots_.size() - 1;
    size_t at = (hash ^ hash >> 32) * base_ >> 32 & mask;
    while (slots_[at].text.data() != nullptr &&
           (slots_[at].hash != hash || slots_[at].text != text)) {
      at = (at + 1) & mask;
    }
    return at;
  }

  uint64_t base_;
  std::vector<Slot> slots_;
};

bool IsOfBlanks(std::string_view piece) {
  for (; piece.starts_with(kBlank); piece.remove_prefix(kBlank.size())) {
  }
  return piece.empty();
}

// SentencePiece joins the neighbours whose joint piece has the highest score. As merges: every way
// to cut a piece into two others, in the order of scores.
Result<Json> ScoredMerges(const Vocabulary& vocabulary, const std::vector<double>& scores) {
  PieceSet pieces(vocabulary.tokens.size());
  std::vector<size_t> order;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const GgufTokenKind kind = vocabulary.kind(id);
    if (kind != GgufTokenKind::kNormal && kind != GgufTokenKind::kUserDefined) continue;
    if (vocabulary.tokens[id].size() > kMaxPieceBytes) {
      return {ErrorCode::kUnsupported, "metadata 'tokenizer.ggml.tokens': token " +
                                           std::to_string(id) + " is longer than " +
                                           std::to_string(kMaxPieceBytes) + " bytes"};
    }
    if (scores[id] != scores[id]) {
      return Corrupt("metadata 'tokenizer.ggml.scores': score " + std::to_string(id) + " is NaN");
    }
    if (pieces.Insert(vocabulary.tokens[id])) order.push_back(id);
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  // Files of models that had a tokenizer.json alone have one score for all: the order of the tokens
  // is that of their merges, but for runs of blanks, which were added last.
  const bool has_scores = !order.empty() && scores[order.front()] != scores[order.back()];
  if (!has_scores) {
    std::stable_partition(order.begin(), order.end(),
                          [&](size_t id) { return !IsOfBlanks(vocabulary.tokens[id]); });
  }
  Json::Array merges;
  size_t merge_bytes = 0;
  for (const size_t id : order) {
    const std::string_view piece = vocabulary.tokens[id];
    if (merges.size() > kMaxMerges || merge_bytes > kMaxMergeBytes) {
      return {ErrorCode::kUnsupported,
              "metadata 'tokenizer.ggml.tokens': its pieces can be cut into others in more than " +
                  std::to_string(kMaxMerges) + " ways, or ways of more than " +
                  std::to_string(kMaxMergeBytes >> 20) + " MiB"};
    }
    uint64_t ends[kMaxPieceBytes + 1];  // hashes of what is from each byte on
    ends[piece.size()] = 0;
    for (size_t i = piece.size(); i > 0; --i) {
      ends[i - 1] = static_cast<uint8_t>(piece[i - 1]) + pieces.base() * ends[i];
    }
    uint64_t power = 1;
    uint64_t beginning = 0;
    for (size_t cut = 1; cut < piece.size(); ++cut) {
      beginning += static_cast<uint8_t>(piece[cut - 1]) * power;
      power *= pieces.base();
      if ((static_cast<unsigned char>(piece[cut]) & 0xC0) == 0x80) continue;  // inside a character
      const std::string_view left = piece.substr(0, cut);
      const std::string_view right = piece.substr(cut);
      if (!pieces.Contains(left, beginning) || !pieces.Contains(right, ends[cut])) continue;
      merges.push_back(Merge(left, right));
      merge_bytes += piece.size();
    }
  }
  return Json(std::move(merges));
}

Json ScoredDecoder(bool adds_space) {
  Json::Array steps = {Replace(kBlank, " "), Json::Object{{"type", "ByteFallback"}},
                       Json::Object{{"type", "Fuse"}}};
  if (adds_space) {
    steps.push_back(Json::Object{{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
  }
  return Sequence("decoders", std::move(steps));
}

// The parts of a merge are apart by a blank, and the first may begin with one.
Result<Json> RankedMerges(const GgufMetadata& metadata, const Vocabulary& vocabulary) {
  KVASIR_TRY(const auto merges, ReadMerges(metadata, vocabulary));
  Json::Array out;
  for (size_t i = 0; i < merges.size(); ++i) {
    const size_t blank = merges[i].find(' ', 1);
    if (!IsValidUtf8(merges[i]) || blank == std::string_view::npos) {
      return Corrupt("metadata 'tokenizer.ggml.merges': merge " + std::to_string(i) +
                     " is no pair of texts in UTF-8");
    }
    out.push_back(Merge(merges[i].substr(0, blank), merges[i].substr(blank + 1)));
  }
  return Json(std::move(out));
}

// Pieces of characters with U+2581 for blanks and bytes for the unknown, as SentencePiece has them.
Result<Json> OfPieces(const GgufMetadata& metadata, const Vocabulary& vocabulary, Json merges,
                      bool adds_space, Bos bos) {
  KVASIR_TRY(Json post, PostProcessor(metadata, vocabulary, bos));
  Json::Object entries = Entries(vocabulary);
  Json::Array normalizers;
  if (adds_space) normalizers.push_back(Json::Object{{"type", "Prepend"}, {"prepend", kBlank}});
  normalizers.push_back(Replace(" ", kBlank));
  Json unknown;
  if (vocabulary.special.unknown) {
    unknown = vocabulary.tokens[static_cast<size_t>(*vocabulary.special.unknown)];
  }
  return WithModel(Json::Object{{"version", "1.0"},
                                {"added_tokens", AddedTokens(vocabulary)},
                                {"normalizer", Sequence("normalizers", std::move(normalizers))},
                                {"pre_tokenizer", nullptr},
                                {"post_processor", std::move(post)},
                                {"decoder", ScoredDecoder(adds_space)}},
                   Json::Object{{"type", "BPE"},
                                {"unk_token", std::move(unknown)},
                                {"fuse_unk", true},
                                {"byte_fallback", true}},
                   std::move(entries), std::move(merges));
}

Result<Json> Scored(const GgufMetadata& metadata) {
  KVASIR_TRY(const Vocabulary vocabulary, ReadVocabulary(metadata));
  KVASIR_TRY(const auto scores, metadata.Numbers("tokenizer.ggml.scores"));
  if (scores.size() != vocabulary.tokens.size()) {
    return Corrupt("metadata 'tokenizer.ggml.scores' must have as many elements as the tokens");
  }
  KVASIR_TRY(const bool adds_space, metadata.FlagOr("tokenizer.ggml.add_space_prefix", true));
  KVASIR_TRY(Json merges, ScoredMerges(vocabulary, scores));
  return OfPieces(metadata, vocabulary, std::move(merges), adds_space, Bos::kYes);
}

// Files say that no BOS is added, as tokenizer.json does; the models were trained with one.
Result<Json> Gemma4(const GgufMetadata& metadata) {
  KVASIR_TRY(const Vocabulary vocabulary, ReadVocabulary(metadata));
  KVASIR_TRY(const bool adds_space, metadata.FlagOr("tokenizer.ggml.add_space_prefix", false));
  KVASIR_TRY(Json merges, RankedMerges(metadata, vocabulary));
  return OfPieces(metadata, vocabulary, std::move(merges), adds_space, Bos::kAlways);
}

}  // namespace

Result<Json> GgufTokenizerJson(const GgufMetadata& metadata) {
  KVASIR_TRY(const std::string model, metadata.TextOr("tokenizer.ggml.model", "none"));
  if (model == "gpt2") return ByteLevel(metadata);
  if (model == "llama") return Scored(metadata);
  if (model == "gemma4") return Gemma4(metadata);
  if (model == "none") return {ErrorCode::kNotFound, "the file has no tokenizer"};
  return {ErrorCode::kUnsupported, "metadata 'tokenizer.ggml.model' is '" + model.substr(0, 40) +
                                       "'; supported are gpt2, llama and gemma4"};
}

void MakeMergesAlike(Json* tokenizer) {
  Json::Array& merges = tokenizer->Find("model")->Find("merges")->as_array();
  const auto is_pair = [](const Json& merge) { return merge.is_array(); };
  if (std::none_of(merges.begin(), merges.end(), is_pair)) return;
  for (Json& merge : merges) {
    if (is_pair(merge)) continue;
    const std::string& text = merge.as_string();
    const size_t blank = text.find(' ');
    merge = Json::Array{Json(text.substr(0, blank)), Json(text.substr(blank + 1))};
  }
}

}  // namespace kvasir
