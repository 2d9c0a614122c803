#include "kvasir/engine/prefix_key.h"

#include <gtest/gtest.h>

#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "kvasir/kv/prefix_segment.h"

namespace kvasir {
namespace {

// Files are called by these, so they must stay as they are. By Python:
//   root = hashlib.sha256(struct.pack("<Q", 7) + b"a model")
//   child = hashlib.sha256(root.digest() + struct.pack("<3i", 1, 2, 70000))
TEST(PrefixKeyTest, IsASha256Digest) {
  const PrefixKey root = RootKey("a model", 7);
  EXPECT_EQ(root.Name(), "d56a4617c2689655f97f0dc461827eff1e9167016c58127c228c3b56e26debe6");
  const std::vector<Token> tokens = {1, 2, 70000};
  EXPECT_EQ(ChildKey(root, tokens).Name(),
            "457ac5bfb168cc73c2bfd4a1fb81c280c8a8d6c16436ada0a5fc596acf430e3c");
}

TEST(PrefixKeyTest, NamesReadBack) {
  const PrefixKey key = RootKey("", 0);
  const std::string name = key.Name();
  EXPECT_EQ(PrefixKey::FromName(name), key);
  EXPECT_FALSE(PrefixKey::FromName(name.substr(1)));
  EXPECT_FALSE(PrefixKey::FromName(name + "0"));
  EXPECT_FALSE(PrefixKey::FromName(""));
  for (const char other : {'A', 'g', '-', '\0'}) {
    std::string changed = name;
    changed[13] = other;
    EXPECT_FALSE(PrefixKey::FromName(changed)) << other;
  }
}

TEST(PrefixKeysTest, OnePerSegmentHoweverTheyCome) {
  std::vector<Token> tokens(5 * kSegmentTokens / 2);
  std::iota(tokens.begin(), tokens.end(), 0);
  const PrefixKey root = RootKey("m", 1);
  PrefixKeys at_once, bit_by_bit;
  at_once.Extend(root, tokens);
  ASSERT_EQ(at_once.keys().size(), 2u);
  for (size_t end = 0; end <= tokens.size(); end += 100) {
    bit_by_bit.Extend(root, std::span(tokens).first(end));
  }
  bit_by_bit.Extend(root, tokens);
  EXPECT_TRUE(std::ranges::equal(at_once.keys(), bit_by_bit.keys()));
  // Nothing is shared by whoever differs in anything, however early.
  std::set<PrefixKey> seen(at_once.keys().begin(), at_once.keys().end());
  for (const PrefixKey& other : {RootKey("m", 2), RootKey("n", 1)}) {
    PrefixKeys keys;
    keys.Extend(other, tokens);
    for (const PrefixKey& key : keys.keys()) EXPECT_TRUE(seen.insert(key).second);
  }
  ++tokens[0];
  PrefixKeys changed;
  changed.Extend(root, tokens);
  for (const PrefixKey& key : changed.keys()) EXPECT_TRUE(seen.insert(key).second);
}

}  // namespace
}  // namespace kvasir
