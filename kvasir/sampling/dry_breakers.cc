#include "kvasir/sampling/dry_breakers.h"

#include <algorithm>
#include <utility>

namespace kvasir {
namespace {

constexpr size_t kMaxTextBytes = 40;
constexpr size_t kMaxTailTokens = 20;

}  // namespace

DryBreakers::DryBreakers(const std::vector<std::string>& texts, const Vocabulary& vocabulary) {
  std::vector<std::string_view> cut_texts;
  std::vector<std::vector<std::vector<Token>>> tails;  // [text][overlap]
  for (const std::string_view whole : texts) {
    const std::string_view text = whole.substr(0, kMaxTextBytes);
    if (text.empty()) continue;
    cut_texts.push_back(text);
    tails.emplace_back(text.size());
    for (size_t overlap = 1; overlap < text.size(); ++overlap) {
      std::vector<Token> tail = vocabulary.encode(text.substr(overlap));
      tail.resize(std::min(tail.size(), kMaxTailTokens));
      tails.back()[overlap] = std::move(tail);
    }
  }
  kinds_.assign(static_cast<size_t>(std::max<int64_t>(vocabulary.size, 0)), kNone);
  for (size_t id = 0; id < kinds_.size() && !cut_texts.empty(); ++id) {
    const auto token = static_cast<Token>(id);
    const std::string bytes = vocabulary.bytes(token);
    for (size_t i = 0; i < cut_texts.size(); ++i) Add(cut_texts[i], tails[i], token, bytes);
  }
}

void DryBreakers::Add(std::string_view text, const std::vector<std::vector<Token>>& tails,
                      Token token, std::string_view bytes) {
  uint8_t& kind = kinds_[static_cast<size_t>(token)];
  if (bytes.find(text) != std::string_view::npos) {
    kind = kSingle;
    return;
  }
  for (size_t overlap = std::min(bytes.size(), text.size() - 1); overlap > 0; --overlap) {
    if (tails[overlap].empty() || !bytes.ends_with(text.substr(0, overlap))) continue;
    sequences_.push_back({token, tails[overlap]});
    kind = std::max<uint8_t>(kind, kHead);
  }
}

DryBreakers::Kind DryBreakers::KindOf(Token token) const {
  if (token < 0 || static_cast<size_t>(token) >= kinds_.size()) return kNone;
  return static_cast<Kind>(kinds_[static_cast<size_t>(token)]);
}

size_t DryBreakers::TailAfterLast(std::span<const Token> tokens) const {
  // `after` tokens follow the one that is looked at.
  for (size_t after = 0; after < tokens.size(); ++after) {
    const Token token = tokens[tokens.size() - 1 - after];
    const Kind kind = KindOf(token);
    if (kind == kSingle) return after;
    if (kind == kNone) continue;
    const std::span<const Token> rest = tokens.last(after);
    size_t longest = 0;
    auto sequence = std::lower_bound(sequences_.begin(), sequences_.end(), token,
                                     [](const Sequence& a, Token head) { return a.head < head; });
    for (; sequence != sequences_.end() && sequence->head == token; ++sequence) {
      const std::vector<Token>& tail = sequence->tail;
      const bool follows =
          tail.size() <= rest.size() && std::equal(tail.begin(), tail.end(), rest.begin());
      if (follows) longest = std::max(longest, tail.size());
    }
    if (longest > 0) return after - longest;
  }
  return tokens.size();
}

}  // namespace kvasir
