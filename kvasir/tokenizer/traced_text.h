// TracedText: text on its way through the normalizers, with the provenance of each byte.
// Deliberately not offsets into the original: nothing downstream needs more than "trusted or not".
#ifndef KVASIR_TOKENIZER_TRACED_TEXT_H_
#define KVASIR_TOKENIZER_TRACED_TEXT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvasir {

struct TracedText {
  std::string bytes;  // valid UTF-8
  // One flag per byte, 1 where the byte comes from a trusted segment. Empty: all as `uniform`.
  std::vector<uint8_t> trusted;
  uint8_t uniform = 1;
  // Rewriting stops adding bytes beyond this. 0: set by the first rewriter, to 64 times the text
  // and 1 KiB, which only a file made to exhaust memory exceeds.
  size_t max_bytes = 0;

  bool IsTrusted(size_t begin, size_t end) const;
  TracedText Slice(size_t begin, size_t end) const;
};

// Builds the next version of a text out of pieces of the last one.
class TextRewriter {
 public:
  // REQUIRES: `source` outlives the rewriter.
  explicit TextRewriter(const TracedText& source);

  // Copies source bytes [begin, end).
  void Keep(size_t begin, size_t end);
  // Puts `content` in the place of source bytes [begin, end); it is trusted if they all are. An
  // insertion (begin == end) is as trusted as the byte after it, or else the byte before it.
  // Where the result would exceed max_bytes the source bytes are copied instead.
  void Replace(size_t begin, size_t end, std::string_view content);
  TracedText Finish() { return std::move(result_); }

 private:
  const TracedText& source_;
  TracedText result_;
};

}  // namespace kvasir

#endif  // KVASIR_TOKENIZER_TRACED_TEXT_H_
