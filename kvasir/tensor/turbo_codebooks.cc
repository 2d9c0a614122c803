#include "kvasir/tensor/turbo_codebooks.h"

#include <array>
#include <cstddef>
#include <limits>

#include "kvasir/base/check.h"

namespace kvasir {
namespace {

constexpr size_t kDims = 32;
constexpr size_t kWidths = 3;

// The positive levels of one dim.
struct PositiveLevels {
  std::array<float, 2> bits2;
  std::array<float, 4> bits3;
  std::array<float, 8> bits4;
};
constexpr PositiveLevels kPositiveLevels[kDims] = {
#include "kvasir/tensor/turbo_codebooks.inc"
};

using Table = std::array<float, kTurboTableSize>;
struct Codebook {
  alignas(64) Table levels = {};
  alignas(64) Table thresholds = {};
  TurboBytes bytes;
};

// The integer next to a number that is not negative.
constexpr int Nearest(double x) { return static_cast<int>(x + 0.5); }

template <size_t kHalf>
constexpr TurboBytes MakeBytes(const std::array<float, kHalf>& positive) {
  const double largest = positive[kHalf - 1];
  double unit = 0;
  double least = std::numeric_limits<double>::infinity();
  for (int count = 127; count >= 64; --count) {
    const double step = largest / count;
    double error = 0;
    for (const double level : positive) {
      const double difference = level - Nearest(level / step) * step;
      error += difference * difference;
    }
    if (error < least) {
      least = error;
      unit = step;
    }
  }
  TurboBytes out;
  out.unit = static_cast<float>(unit);
  for (size_t i = 0; i < kTurboTableSize; ++i) {
    const size_t code = i % (2 * kHalf);
    const int level = code < kHalf ? -Nearest(positive[kHalf - 1 - code] / unit)
                                   : Nearest(positive[code - kHalf] / unit);
    out.bytes[i] = static_cast<uint8_t>(128 + level);
  }
  return out;
}

template <size_t kHalf>
constexpr Codebook MakeCodebook(const std::array<float, kHalf>& positive) {
  Codebook book;
  for (size_t i = 0; i < kTurboTableSize; ++i) {
    const size_t code = i % (2 * kHalf);
    book.levels[i] = code < kHalf ? -positive[kHalf - 1 - code] : positive[code - kHalf];
    book.thresholds[i] = std::numeric_limits<float>::infinity();
  }
  for (size_t i = 0; i + 1 < 2 * kHalf; ++i) {
    book.thresholds[i] = (book.levels[i] + book.levels[i + 1]) * 0.5f;
  }
  book.bytes = MakeBytes(positive);
  return book;
}

constexpr auto MakeCodebooks() {
  std::array<std::array<Codebook, kWidths>, kDims> books;
  for (size_t i = 0; i < kDims; ++i) {
    books[i][0] = MakeCodebook(kPositiveLevels[i].bits2);
    books[i][1] = MakeCodebook(kPositiveLevels[i].bits3);
    books[i][2] = MakeCodebook(kPositiveLevels[i].bits4);
  }
  return books;
}
constexpr auto kCodebooks = MakeCodebooks();

const Codebook& CodebookOf(int64_t dim, int bits) {
  KVASIR_DCHECK(dim > 0 && dim % 16 == 0 && dim <= 512 && bits >= 2 && bits <= 4);
  return kCodebooks[static_cast<size_t>(dim / 16 - 1)][static_cast<size_t>(bits - 2)];
}

}  // namespace

const float* TurboLevels(int64_t dim, int bits) { return CodebookOf(dim, bits).levels.data(); }

const float* TurboThresholds(int64_t dim, int bits) {
  return CodebookOf(dim, bits).thresholds.data();
}

const TurboBytes& TurboBytesOf(int64_t dim, int bits) { return CodebookOf(dim, bits).bytes; }

}  // namespace kvasir
