#include "kvasir/tokenizer/traced_text.h"

#include <algorithm>

namespace kvasir {
namespace {

constexpr size_t kMaxGrowth = 64;
constexpr size_t kGrowthSlackBytes = 1024;

}  // namespace

bool TracedText::IsTrusted(size_t begin, size_t end) const {
  if (trusted.empty()) return uniform != 0;
  return std::find(trusted.begin() + static_cast<ptrdiff_t>(begin),
                   trusted.begin() + static_cast<ptrdiff_t>(end),
                   0) == trusted.begin() + static_cast<ptrdiff_t>(end);
}

TracedText TracedText::Slice(size_t begin, size_t end) const {
  TracedText slice{bytes.substr(begin, end - begin), {}, uniform, max_bytes};
  if (!trusted.empty()) {
    slice.trusted.assign(trusted.begin() + static_cast<ptrdiff_t>(begin),
                         trusted.begin() + static_cast<ptrdiff_t>(end));
  }
  return slice;
}

TextRewriter::TextRewriter(const TracedText& source) : source_(source) {
  result_.max_bytes = source.max_bytes != 0 ? source.max_bytes
                                            : source.bytes.size() * kMaxGrowth + kGrowthSlackBytes;
  result_.uniform = source.uniform;
  result_.bytes.reserve(source.bytes.size());
  result_.trusted.reserve(source.trusted.size());
}

void TextRewriter::Keep(size_t begin, size_t end) {
  result_.bytes.append(source_.bytes, begin, end - begin);
  if (source_.trusted.empty()) return;
  result_.trusted.insert(result_.trusted.end(),
                         source_.trusted.begin() + static_cast<ptrdiff_t>(begin),
                         source_.trusted.begin() + static_cast<ptrdiff_t>(end));
}

void TextRewriter::Replace(size_t begin, size_t end, std::string_view content) {
  const size_t rest_bytes = source_.bytes.size() - end;
  if (content.size() > end - begin &&
      result_.bytes.size() + content.size() + rest_bytes > result_.max_bytes) {
    return Keep(begin, end);
  }
  result_.bytes += content;
  if (source_.trusted.empty()) return;
  if (begin == end) {
    if (end < source_.bytes.size()) {
      ++end;
    } else if (begin > 0) {
      --begin;
    }
  }
  result_.trusted.insert(result_.trusted.end(), content.size(),
                         source_.IsTrusted(begin, end) ? 1 : 0);
}

}  // namespace kvasir
