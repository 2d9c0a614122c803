#include "kvasir/sampling/dry_breakers.h"

#include <algorithm>

namespace kvasir {
namespace {

constexpr size_t kMaxTextBytes = 40;
constexpr size_t kMaxTailTokens = 20;

}  // namespace

DryBreakers::DryBreakers(const std::vector<std::string>& texts, const Vocabulary& vocabulary) {
  kinds_.assign(static_cast<size_t>(std::max<int64_t>(vocabulary.size, 0)), kNone);
  for (size_t id = 0; id < kinds_.size(); ++id) {
    const auto token = static_cast<Token>(id);
    const std::string bytes = vocabulary.bytes(token);
    for (const std::string& text : texts) {
      if (!text.empty())
        Add(std::string_view(text).substr(0, kMaxTextBytes), token, bytes, vocabulary);
    }
  }
}

void DryBreakers::Add(std::string_view text, Token token, std::string_view bytes,
                      const Vocabulary& vocabulary) {
  uint8_t& kind = kinds_[static_cast<size_t>(token)];
  if (bytes.find(text) != std::string_view::npos) {
    kind = kSingle;
    return;
  }
  for (size_t overlap = std::min(bytes.size(), text.size() - 1); overlap > 0; --overlap) {
    if (!bytes.ends_with(text.substr(0, overlap))) continue;
    std::vector<Token> tail = vocabulary.encode(text.substr(overlap));
    if (tail.empty()) continue;
    tail.resize(std::min(tail.size(), kMaxTailTokens));
    sequences_.push_back({token, std::move(tail)});
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
