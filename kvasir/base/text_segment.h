// Text with its provenance: what a chat template wrote itself, and what came from outside.
// Deliberately not a rope: segments are concatenated once, by the tokenizer.
#ifndef KVASIR_BASE_TEXT_SEGMENT_H_
#define KVASIR_BASE_TEXT_SEGMENT_H_

#include <string>
#include <vector>

namespace kvasir {

struct TextSegment {
  std::string text;
  // True for text the template itself wrote: only there may "<|im_end|>" become a special token.
  // False for messages, tools and other input: it is always ordinary text.
  bool trusted = false;
};

using TextSegments = std::vector<TextSegment>;

}  // namespace kvasir

#endif  // KVASIR_BASE_TEXT_SEGMENT_H_
