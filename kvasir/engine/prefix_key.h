// PrefixKey: what a prefix of tokens is called by whoever keeps its cache outside of memory.
// Deliberately a hash that nobody can make collide: by its key a cache is believed to be of these
// tokens, without looking at them. Of which model it is, and who may see it, is as sure as the
// identity and the salt that it begins with.
#ifndef KVASIR_ENGINE_PREFIX_KEY_H_
#define KVASIR_ENGINE_PREFIX_KEY_H_

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/token.h"

namespace kvasir {

// A SHA-256 digest. The empty prefix has a key as well, which says whose prefixes these are
// (RootKey); a longer one has that of the key before it and its own last tokens.
struct PrefixKey {
  std::array<std::byte, 32> digest = {};

  auto operator<=>(const PrefixKey&) const = default;

  // 64 hexadecimal digits.
  std::string Name() const;
  // None for anything else.
  static std::optional<PrefixKey> FromName(std::string_view name);
};

struct PrefixKeyHash {
  size_t operator()(const PrefixKey& key) const {
    size_t hash;
    std::memcpy(&hash, key.digest.data(), sizeof(hash));
    return hash;
  }
};

// Of the empty prefix of those who share `salt`. `identity`: what else decides the rows' bits.
PrefixKey RootKey(std::string_view identity, uint64_t salt);
// Of a prefix that has `tokens` behind that of `parent`. The bytes hashed are the parent's digest
// and the tokens, 4 bytes each, little-endian.
PrefixKey ChildKey(const PrefixKey& parent, std::span<const Token> tokens);

// The keys of a growing sequence's prefixes, one for each whole segment of kSegmentTokens.
class PrefixKeys {
 public:
  // `tokens`: all, from position 0 on, of which the first were the same in the calls before.
  void Extend(const PrefixKey& root, std::span<const Token> tokens);
  // keys()[i] is that of the first (i + 1) segments.
  std::span<const PrefixKey> keys() const { return keys_; }

 private:
  std::vector<PrefixKey> keys_;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_PREFIX_KEY_H_
