// Text: a string that knows, byte by byte, whether the template wrote it or it came from outside.
// Deliberately not a rope or copy-on-write: a prompt is small and its strings are shared whole.
#ifndef KVASIR_CHAT_TEXT_H_
#define KVASIR_CHAT_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace kvasir::chat {

// Who wrote some bytes. Only kTemplate bytes may become special tokens later.
enum class Origin { kInput, kTemplate };

// kTemplate only if both are.
inline Origin Weaker(Origin a, Origin b) {
  return a == Origin::kTemplate && b == Origin::kTemplate ? Origin::kTemplate : Origin::kInput;
}

class Text {
 public:
  // Bytes up to `end_bytes` (exclusive) since the end of the previous run. Neighbours differ.
  struct Run {
    size_t end_bytes;
    Origin origin;
  };

  Text() = default;
  Text(std::string_view bytes, Origin origin) { Append(bytes, origin); }

  const std::string& bytes() const { return bytes_; }
  size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  const std::vector<Run>& runs() const { return runs_; }

  // kTemplate if every byte is (also of an empty text): what a filter that adds characters of its
  // own, or loses track, gives them.
  Origin origin() const;
  // The origin of the byte at `position`. REQUIRES: position < size().
  Origin OriginAt(size_t position) const;

  void Append(std::string_view bytes, Origin origin);
  void Append(const Text& other);
  // Bytes [begin, end) of other. REQUIRES: begin <= end <= other.size().
  void AppendRange(const Text& other, size_t begin, size_t end);
  Text Substr(size_t begin, size_t end) const;

  // HTML-escaped already (the escape and safe filters); `+` then escapes the other side, as
  // Python's Markup does.
  bool is_markup() const { return is_markup_; }
  Text AsMarkup() const;
  Text AsPlain() const;

 private:
  size_t RunIndexAt(size_t position) const;

  std::string bytes_;
  std::vector<Run> runs_;
  bool is_markup_ = false;
};

// Replaces & < > ' " by entities, unless the text is markup already. The result is markup.
Text EscapeHtml(const Text& text);

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_TEXT_H_
