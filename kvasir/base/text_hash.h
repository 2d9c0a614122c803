// TextHash: a hash for tables whose keys come from a network.
// Deliberately another in each process: whoever knows the function in advance can send keys that
// all fall into one place, and then every look-up takes as long as the table is large.
#ifndef KVASIR_BASE_TEXT_HASH_H_
#define KVASIR_BASE_TEXT_HASH_H_

#include <cstddef>
#include <string_view>

namespace kvasir {

struct TextHash {
  size_t operator()(std::string_view text) const;
};

}  // namespace kvasir

#endif  // KVASIR_BASE_TEXT_HASH_H_
