// The two integers that everything counts in.
// Deliberately plain aliases: they cross every layer, file format and C boundary.
#ifndef KVASIR_BASE_TOKEN_H_
#define KVASIR_BASE_TOKEN_H_

#include <cstdint>

namespace kvasir {

// An id in a model's vocabulary.
using Token = int32_t;
// A place in a sequence, counted from 0. Never a row number: eviction lowers rows, not positions.
using Position = int64_t;

}  // namespace kvasir

#endif  // KVASIR_BASE_TOKEN_H_
