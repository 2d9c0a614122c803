// split, rsplit, splitlines and partition.
// Deliberately collecting byte ranges first: the pieces are made once their number is known.
#include "kvasir/chat/string_split.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "kvasir/chat/methods.h"
#include "kvasir/chat/unicode.h"

namespace kvasir::chat {
namespace {

using Range = std::pair<size_t, size_t>;  // [begin, end) in bytes

std::vector<Range> SplitAtWords(const std::string& bytes, int64_t most) {
  std::vector<Range> pieces;
  size_t at = 0;
  const auto skip_space = [&] {
    while (at < bytes.size() && IsSpace(DecodeUtf8(bytes, at).value)) {
      at += DecodeUtf8(bytes, at).size_bytes;
    }
  };
  for (skip_space(); at < bytes.size(); skip_space()) {
    const size_t begin = at;
    if (most >= 0 && static_cast<int64_t>(pieces.size()) >= most) {
      pieces.emplace_back(begin, bytes.size());  // as CPython: the rest is not stripped
      break;
    }
    while (at < bytes.size() && !IsSpace(DecodeUtf8(bytes, at).value)) {
      at += DecodeUtf8(bytes, at).size_bytes;
    }
    pieces.emplace_back(begin, at);
  }
  return pieces;
}

std::vector<Range> SplitAtWordsFromRight(const std::string& bytes, int64_t most) {
  std::vector<Range> words = SplitAtWords(bytes, -1);
  if (most < 0 || static_cast<int64_t>(words.size()) <= most) return words;
  const size_t merged = words.size() - static_cast<size_t>(most);
  // As CPython: what is left over is stripped at its right end only.
  std::vector<Range> pieces;
  pieces.emplace_back(0, words[merged - 1].second);
  pieces.insert(pieces.end(), words.begin() + static_cast<std::ptrdiff_t>(merged), words.end());
  return pieces;
}

std::vector<Range> SplitAt(const std::string& bytes, const std::string& separator, int64_t most) {
  std::vector<Range> pieces;
  size_t begin = 0;
  while (most < 0 || static_cast<int64_t>(pieces.size()) < most) {
    const size_t found = bytes.find(separator, begin);
    if (found == std::string::npos) break;
    pieces.emplace_back(begin, found);
    begin = found + separator.size();
  }
  pieces.emplace_back(begin, bytes.size());
  return pieces;
}

std::vector<Range> SplitAtFromRight(const std::string& bytes, const std::string& separator,
                                    int64_t most) {
  std::vector<Range> pieces;
  size_t end = bytes.size();
  while (most < 0 || static_cast<int64_t>(pieces.size()) < most) {
    if (end < separator.size()) break;
    const size_t found = bytes.rfind(separator, end - separator.size());
    if (found == std::string::npos) break;
    pieces.emplace_back(found + separator.size(), end);
    end = found;
  }
  pieces.emplace_back(0, end);
  std::reverse(pieces.begin(), pieces.end());
  return pieces;
}

using WordSplitter = std::vector<Range> (*)(const std::string&, int64_t);
using Splitter = std::vector<Range> (*)(const std::string&, const std::string&, int64_t);

Result<Value> Split(Runtime& runtime, const Text& self, const CallArguments& arguments,
                    WordSplitter split_words, Splitter split) {
  KVASIR_TRY(const BoundArguments bound,
             BoundArguments::Bind("split", arguments, {"sep", "maxsplit"}, 0));
  KVASIR_TRY(const int64_t most, bound.IntOr(1, -1));
  KVASIR_TRY_OK(runtime.StepBytes(self.size()));
  std::vector<Range> ranges;
  if (bound.GetSome(0) == nullptr) {
    ranges = split_words(self.bytes(), most);
  } else {
    KVASIR_TRY(const Text separator, bound.TextOr(0, Text()));
    if (separator.empty()) return TemplateError("empty separator");
    KVASIR_TRY_OK(runtime.StepSearch(self.size(), separator.size()));
    ranges = split(self.bytes(), separator.bytes(), most);
  }
  KVASIR_TRY_OK(runtime.Step(static_cast<int64_t>(ranges.size())));
  std::vector<Value> pieces;
  pieces.reserve(ranges.size());
  for (const auto& [begin, end] : ranges) {
    pieces.push_back(runtime.String(self.Substr(begin, end)));
    KVASIR_TRY_OK(runtime.Step(0));
  }
  return runtime.List(std::move(pieces));
}

Result<Value> Partition(Runtime& runtime, const Text& self, size_t found, size_t separator_size,
                        Ends where_missing) {
  std::vector<Value> parts;
  if (found == std::string::npos) {
    parts = {runtime.String(Text()), runtime.String(Text()), runtime.String(Text())};
    parts[where_missing == Ends::kLeft ? 0 : 2] = runtime.String(self);
  } else {
    parts = {runtime.String(self.Substr(0, found)),
             runtime.String(self.Substr(found, found + separator_size)),
             runtime.String(self.Substr(found + separator_size, self.size()))};
  }
  return runtime.Tuple(std::move(parts));
}

Result<Text> BindSeparator(const CallArguments& arguments) {
  KVASIR_TRY(const BoundArguments bound, BoundArguments::Bind("partition", arguments, {"sep"}, 1));
  KVASIR_TRY(Text separator, bound.TextOr(0, Text()));
  if (separator.empty()) return TemplateError("empty separator");
  return separator;
}

}  // namespace

Result<Value> SplitFromLeft(Runtime& runtime, const Text& self, const CallArguments& arguments) {
  return Split(runtime, self, arguments, SplitAtWords, SplitAt);
}

Result<Value> SplitFromRight(Runtime& runtime, const Text& self, const CallArguments& arguments) {
  return Split(runtime, self, arguments, SplitAtWordsFromRight, SplitAtFromRight);
}

Result<Value> SplitLinesMethod(Runtime& runtime, const Text& self, const CallArguments& arguments) {
  KVASIR_TRY(const BoundArguments bound,
             BoundArguments::Bind("splitlines", arguments, {"keepends"}, 0));
  const bool keep_ends = bound.TruthOr(0, false);
  std::vector<Value> lines;
  size_t begin = 0;
  for (const Text& line : SplitLines(self)) {
    const size_t end = begin + line.size();
    size_t next = end;
    if (next < self.size()) {
      const bool is_pair = self.bytes().compare(next, 2, "\r\n") == 0;
      next += is_pair ? 2 : DecodeUtf8(self.bytes(), next).size_bytes;
    }
    lines.push_back(runtime.String(self.Substr(begin, keep_ends ? next : end)));
    begin = next;
    KVASIR_TRY_OK(runtime.Step());
  }
  return runtime.List(std::move(lines));
}

Result<Value> PartitionFromLeft(Runtime& runtime, const Text& self,
                                const CallArguments& arguments) {
  KVASIR_TRY(const Text separator, BindSeparator(arguments));
  KVASIR_TRY_OK(runtime.StepSearch(self.size(), separator.size()));
  return Partition(runtime, self, self.bytes().find(separator.bytes()), separator.size(),
                   Ends::kLeft);
}

Result<Value> PartitionFromRight(Runtime& runtime, const Text& self,
                                 const CallArguments& arguments) {
  KVASIR_TRY(const Text separator, BindSeparator(arguments));
  KVASIR_TRY_OK(runtime.StepSearch(self.size(), separator.size()));
  return Partition(runtime, self, self.bytes().rfind(separator.bytes()), separator.size(),
                   Ends::kRight);
}

}  // namespace kvasir::chat
