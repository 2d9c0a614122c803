// CharSet: a set of Unicode scalar values as sorted ranges.
// Deliberately no properties, scripts or case folding: grammars spell their ranges out.
#ifndef KVASIR_GRAMMAR_CHAR_SET_H_
#define KVASIR_GRAMMAR_CHAR_SET_H_

#include <vector>

namespace kvasir {

struct CharRange {
  char32_t low = 0;
  char32_t high = 0;  // inclusive
};

class CharSet {
 public:
  CharSet() = default;
  // Order and overlap do not matter; surrogates and what lies above U+10FFFF are left out.
  explicit CharSet(std::vector<CharRange> ranges);
  static CharSet Of(char32_t code) { return CharSet({{code, code}}); }
  static CharSet All() { return CharSet({{0, 0x10FFFF}}); }

  bool empty() const { return ranges_.empty(); }
  bool Contains(char32_t code) const;
  // Ascending, disjoint, with gaps between them; none contains a surrogate.
  const std::vector<CharRange>& ranges() const { return ranges_; }

  CharSet Complement() const;
  CharSet Union(const CharSet& other) const;
  CharSet Minus(const CharSet& other) const;
  CharSet Intersect(const CharSet& other) const;

 private:
  std::vector<CharRange> ranges_;
};

}  // namespace kvasir

#endif  // KVASIR_GRAMMAR_CHAR_SET_H_
