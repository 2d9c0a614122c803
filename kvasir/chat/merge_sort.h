// A stable sort whose comparison may fail.
// Deliberately not std::stable_sort: that has no way to stop at an error.
#ifndef KVASIR_CHAT_MERGE_SORT_H_
#define KVASIR_CHAT_MERGE_SORT_H_

#include <algorithm>
#include <utility>
#include <vector>

#include "kvasir/base/result.h"

namespace kvasir::chat {

// Sorts by `less(a, b)` -> Result<bool>. ERRORS: the first error of `less`.
template <typename T, typename Less>
Result<std::vector<T>> MergeSort(std::vector<T> items, const Less& less) {
  std::vector<T> merged;
  for (size_t width = 1; width < items.size(); width *= 2) {
    merged.clear();
    merged.reserve(items.size());
    for (size_t begin = 0; begin < items.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, items.size());
      const size_t end = std::min(begin + 2 * width, items.size());
      size_t left = begin;
      size_t right = middle;
      while (left < middle && right < end) {
        KVASIR_TRY(const bool right_first, less(items[right], items[left]));
        merged.push_back(std::move(right_first ? items[right++] : items[left++]));
      }
      while (left < middle) merged.push_back(std::move(items[left++]));
      while (right < end) merged.push_back(std::move(items[right++]));
    }
    items.swap(merged);
  }
  return items;
}

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_MERGE_SORT_H_
