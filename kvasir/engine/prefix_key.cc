#include "kvasir/engine/prefix_key.h"

#include <openssl/evp.h>

#include <bit>

#include "kvasir/base/check.h"
#include "kvasir/kv/prefix_segment.h"

namespace kvasir {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr char kDigits[] = "0123456789abcdef";

PrefixKey Sha256(std::span<const std::byte> bytes) {
  PrefixKey key;
  unsigned int size = 0;
  const int ok =
      EVP_Digest(bytes.data(), bytes.size(), reinterpret_cast<unsigned char*>(key.digest.data()),
                 &size, EVP_sha256(), nullptr);
  KVASIR_CHECK(ok == 1 && size == key.digest.size());
  return key;
}

int ValueOf(char digit) {
  if (digit >= '0' && digit <= '9') return digit - '0';
  if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
  return -1;
}

void Append(std::span<const std::byte> bytes, std::vector<std::byte>* to) {
  to->insert(to->end(), bytes.begin(), bytes.end());
}

}  // namespace

std::string PrefixKey::Name() const {
  std::string name;
  for (const std::byte byte : digest) {
    const auto value = std::to_integer<unsigned>(byte);
    name += kDigits[value >> 4];
    name += kDigits[value & 15];
  }
  return name;
}

std::optional<PrefixKey> PrefixKey::FromName(std::string_view name) {
  PrefixKey key;
  if (name.size() != 2 * key.digest.size()) return std::nullopt;
  for (size_t i = 0; i < key.digest.size(); ++i) {
    const int high = ValueOf(name[2 * i]);
    const int low = ValueOf(name[2 * i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    key.digest[i] = static_cast<std::byte>(high << 4 | low);
  }
  return key;
}

PrefixKey RootKey(std::string_view identity, uint64_t salt) {
  std::vector<std::byte> bytes;
  Append(std::as_bytes(std::span(&salt, 1)), &bytes);
  Append(std::as_bytes(std::span(identity)), &bytes);
  return Sha256(bytes);
}

PrefixKey ChildKey(const PrefixKey& parent, std::span<const Token> tokens) {
  std::vector<std::byte> bytes;
  bytes.reserve(sizeof(parent.digest) + tokens.size_bytes());
  Append(parent.digest, &bytes);
  Append(std::as_bytes(tokens), &bytes);
  return Sha256(bytes);
}

void PrefixKeys::Extend(const PrefixKey& root, std::span<const Token> tokens) {
  constexpr auto kTokens = static_cast<size_t>(kSegmentTokens);
  while ((keys_.size() + 1) * kTokens <= tokens.size()) {
    const PrefixKey& parent = keys_.empty() ? root : keys_.back();
    keys_.push_back(ChildKey(parent, tokens.subspan(keys_.size() * kTokens, kTokens)));
  }
}

}  // namespace kvasir
