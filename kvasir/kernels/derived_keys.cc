#include "kvasir/kernels/derived_keys.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "kvasir/base/check.h"
#include "kvasir/base/trigonometry.h"
#include "kvasir/kernels/highway_targets.h"
#include "kvasir/kernels/table_parts.h"
#include "kvasir/tensor/dtype.h"
#include "kvasir/tensor/packed_codec.h"
#include "kvasir/tensor/packed_codes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvasir/kernels/derived_keys.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if KVASIR_KERNEL_TARGET
#include "kvasir/kernels/codec-inl.h"
#include "kvasir/kernels/math-inl.h"
#include "kvasir/kernels/packed_levels-inl.h"
#include "kvasir/kernels/rotation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvasir::HWY_NAMESPACE {
namespace {

constexpr int kSlots = static_cast<int>(kLanes);
using DHalf = hn::Half<DF>;
using DD = hn::Rebind<double, DHalf>;
using VD = hn::Vec<DD>;

template <size_t kTerms>
HWY_INLINE VD Polynomial(const double (&terms)[kTerms], VD z) {
  const DD d;
  VD p = hn::Set(d, terms[0]);
  for (size_t i = 1; i < kTerms; ++i) p = hn::MulAdd(p, z, hn::Set(d, terms[i]));
  return p;
}

// SinCos of base/trigonometry.h.
HWY_INLINE void SinCosOf(VD x, VD& sin, VD& cos) {
  const DD d;
  const VD quotient = hn::Round(hn::Mul(x, hn::Set(d, kTwoOverPi)));
  VD rest = x;
  for (const double part : kHalfPiParts) rest = hn::NegMulAdd(quotient, hn::Set(d, part), rest);
  const VD z = hn::Mul(rest, rest);
  const VD sine = hn::MulAdd(hn::Mul(Polynomial(kSinTerms, z), z), rest, rest);
  const VD cosine = hn::MulAdd(Polynomial(kCosTerms, z), z, hn::Set(d, 1.0));
  // The quotient's last two bits, exact in floating point.
  const VD whole = hn::Floor(hn::Mul(quotient, hn::Set(d, 0.25)));
  const VD quadrant = hn::NegMulAdd(whole, hn::Set(d, 4.0), quotient);
  const auto is = [&](double number) { return hn::Eq(quadrant, hn::Set(d, number)); };
  const auto swaps = hn::Or(is(1), is(3));
  sin = hn::IfThenElse(swaps, cosine, sine);
  cos = hn::IfThenElse(swaps, sine, cosine);
  sin = hn::IfThenElse(hn::Or(is(2), is(3)), hn::Neg(sin), sin);
  cos = hn::IfThenElse(hn::Or(is(1), is(2)), hn::Neg(cos), cos);
}

// Rounded to float, of the angles position * frequency of kLanes slots.
HWY_INLINE void TurnOf(const double* positions, float frequency, VF& sin, VF& cos) {
  const DD d;
  const VD factor = hn::Set(d, static_cast<double>(frequency));
  VD low_sin, low_cos, high_sin, high_cos;
  SinCosOf(hn::Mul(hn::LoadU(d, positions), factor), low_sin, low_cos);
  SinCosOf(hn::Mul(hn::LoadU(d, positions + hn::Lanes(d)), factor), high_sin, high_cos);
  const DHalf half;
  sin = hn::Combine(DF(), hn::DemoteTo(half, high_sin), hn::DemoteTo(half, low_sin));
  cos = hn::Combine(DF(), hn::DemoteTo(half, high_cos), hn::DemoteTo(half, low_cos));
}

// Reads the values of one slot, [value_dim].
using ReadRow = void (*)(const DeriveKeysArgs& args, int slot, float* row);

template <class Codec>
void ReadDense(const DeriveKeysArgs& args, int slot, float* row) {
  const int64_t dim = args.layout->value_dim;
  const auto* const stored =
      reinterpret_cast<const typename Codec::Stored*>(args.values) + slot * dim;
  int64_t i = 0;
  for (; i + kSlots <= dim; i += kSlots) hn::StoreU(Codec::Decode(stored + i), DF(), row + i);
  if (i < dim)
    StorePartial(DecodePartial<Codec>(stored + i, static_cast<size_t>(dim - i)), row + i,
                 static_cast<size_t>(dim - i));
}

// DecodePackedValueRow of tensor/packed_codec.h: lanes are dims, whose codes of one slot lie at the
// same bits of neighbouring words.
template <class Levels>
void ReadPacked(const DeriveKeysArgs& args, int slot, float* row) {
  constexpr int64_t kBits = Levels::kBits;
  constexpr int64_t kUnitWords = kVirtualLanes * kBits;
  const DF d;
  const KvCodec& codec = args.layout->value_codec;
  const int64_t dim = args.layout->value_dim;
  const bool turbo = codec.kind == KvCodec::Kind::kTurbo;
  const Levels levels(codec, dim);
  const int64_t first_bit = slot % kLaneCodes * kBits;
  const auto shift = static_cast<int>(first_bit % 32);
  const uint32_t* const words = reinterpret_cast<const uint32_t*>(args.values) +
                                slot / kLaneCodes * kUnitWords + first_bit / 32 * kVirtualLanes;
  const int64_t group = turbo ? dim : codec.group;
  for (int64_t begin = 0; begin < dim; begin += group) {
    const AffineGroup parameters =
        turbo ? AffineGroup{LoadTurboNorm(codec, args.values, dim, slot), 0.0f}
              : LoadAffineGroup(codec, args.values, dim, begin / group, slot);
    const VF scale = hn::Set(d, parameters.scale);
    const VF bias = hn::Set(d, parameters.bias);
    for (int64_t i = begin; i < begin + group; i += kSlots) {
      const uint32_t* const word = words + i / kVirtualLanes * 2 * kUnitWords + i % kVirtualLanes;
      VU codes = hn::ShiftRightSame(hn::LoadU(DU(), word), shift);
      if (shift + kBits > 32) {
        const VU above = hn::LoadU(DU(), word + kVirtualLanes);
        codes = hn::Or(codes, hn::ShiftLeftSame(above, 32 - shift));
      }
      const VF value = hn::Mul(levels.template Get<false>(codes), scale);
      hn::StoreU(turbo ? value : hn::Add(value, bias), d, row + i);
    }
  }
  if (codec.rotates()) RotateRowBack(row, dim);
}

ReadRow ReaderOf(const KvCodec& codec) {
  switch (codec.kind) {
    case KvCodec::Kind::kF32:
      return ReadDense<F32Codec>;
    case KvCodec::Kind::kF16:
      return ReadDense<F16Codec>;
    case KvCodec::Kind::kBf16:
      return ReadDense<Bf16Codec>;
    case KvCodec::Kind::kTurbo:
      return codec.bits == 2   ? ReadPacked<TableLevels<2>>
             : codec.bits == 3 ? ReadPacked<TableLevels<3>>
                               : ReadPacked<TableLevels<4>>;
    case KvCodec::Kind::kAffine:
    case KvCodec::Kind::kFromValue:  // is no way to store values
      break;
  }
  switch (codec.bits) {
    case 2:
      return ReadPacked<AffineLevels<2>>;
    case 3:
      return ReadPacked<AffineLevels<3>>;
    case 4:
      return ReadPacked<AffineLevels<4>>;
    case 5:
      return ReadPacked<AffineLevels<5>>;
    case 6:
      return ReadPacked<AffineLevels<6>>;
    default:
      return ReadPacked<AffineLevels<8>>;
  }
}

void MakeTurns(const KvKeyDerivation& derivation, std::span<const Position, kBlockTokens> positions,
               float* turns) {
  double places[kBlockTokens];
  std::copy(positions.begin(), positions.end(), places);
  for (const float frequency : derivation.inv_freq) {
    if (frequency == 0) continue;
    for (int first = 0; first < kBlockTokens; first += kSlots) {
      VF sin, cos;
      TurnOf(places + first, frequency, sin, cos);
      hn::Store(sin, DF(), turns + first);
      hn::Store(cos, DF(), turns + kBlockTokens + first);
    }
    turns += 2 * kBlockTokens;
  }
}

// kRun numbers from each of as many rows as fill a vector, every kRun-th of those from `row` on,
// side by side.
template <size_t kRun, class D, class T>
HWY_INLINE hn::Vec<D> LoadRuns(D d, const T* row, int64_t stride) {
  if constexpr (hn::MaxLanes(D()) == kRun) {
    return hn::LoadU(d, row);
  } else {
    const hn::Half<D> half;
    constexpr auto kRows = static_cast<int64_t>(hn::MaxLanes(D()) / 2);
    return hn::Combine(d, LoadRuns<kRun>(half, row + kRows * stride, stride),
                       LoadRuns<kRun>(half, row, stride));
  }
}

// Dims that are loaded together.
constexpr int64_t kDimsTogether = 8;

// Four dims of kLanes slots, whose rows begin at `row`: a vector of each.
HWY_INLINE void LoadFourDims(const float* row, int64_t stride, VF* dims) {
  const DF d;
  const VF a = LoadRuns<4>(d, row, stride);
  const VF b = LoadRuns<4>(d, row + stride, stride);
  const VF c = LoadRuns<4>(d, row + 2 * stride, stride);
  const VF e = LoadRuns<4>(d, row + 3 * stride, stride);
  const VF ac_low = hn::InterleaveLower(d, a, c);
  const VF ac_high = hn::InterleaveUpper(d, a, c);
  const VF be_low = hn::InterleaveLower(d, b, e);
  const VF be_high = hn::InterleaveUpper(d, b, e);
  dims[0] = hn::InterleaveLower(d, ac_low, be_low);
  dims[1] = hn::InterleaveUpper(d, ac_low, be_low);
  dims[2] = hn::InterleaveLower(d, ac_high, be_high);
  dims[3] = hn::InterleaveUpper(d, ac_high, be_high);
}

// Values of kLanes slots as rows of floats, in whatever codec they are.
class FloatRows {
 public:
  explicit FloatRows(const DeriveKeysArgs& args)
      : args_(args),
        dim_(args.layout->value_dim),
        read_(ReaderOf(args.layout->value_codec)),
        rows_(static_cast<size_t>(dim_) * kSlots) {}

  void Enter(int first) {
    if (args_.begin > first || args_.end < first + kSlots) {
      std::fill(rows_.begin(), rows_.end(), 0.0f);
    }
    for (int i = 0; i < kSlots; ++i) {
      const int slot = first + i;
      if (slot < args_.begin || slot >= args_.end) continue;
      read_(args_, slot, rows_.data() + i * dim_);
    }
  }
  HWY_INLINE void Load(int64_t dim, VF (&dims)[kDimsTogether]) const {
    LoadFourDims(rows_.data() + dim, dim_, dims);
    LoadFourDims(rows_.data() + dim + 4, dim_, dims + 4);
  }
  HWY_INLINE VF Load(int64_t dim) const {
    const hn::Rebind<int32_t, DF> d;
    const auto strides = hn::Mul(hn::Iota(d, 0), hn::Set(d, static_cast<int32_t>(dim_)));
    return hn::GatherIndex(DF(), rows_.data() + dim, strides);
  }

 private:
  const DeriveKeysArgs& args_;
  const int64_t dim_;
  const ReadRow read_;
  std::vector<float> rows_;  // [kLanes, dim]
};

#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX2
#define KVASIR_DERIVES_FROM_HALVES 1

// kLanes numbers of 16 bits.
using DHalves = hn::Rebind<uint16_t, DF>;
using VHalves = hn::Vec<DHalves>;

// Values of 16 bits where they lie. Those of slots that nobody asks for may be anything.
template <class Codec>
class StoredHalves {
 public:
  explicit StoredHalves(const DeriveKeysArgs& args)
      : values_(reinterpret_cast<const uint16_t*>(args.values)), dim_(args.layout->value_dim) {}

  void Enter(int first) { row_ = values_ + first * dim_; }
  HWY_INLINE void Load(int64_t dim, VF (&dims)[kDimsTogether]) const {
    VHalves stored[kDimsTogether];
    LoadStored(dim, stored);
#pragma GCC unroll 8
    for (int64_t i = 0; i < kDimsTogether; ++i) dims[i] = Codec::Widen(stored[i]);
  }
  HWY_INLINE void LoadStored(int64_t dim, VHalves (&dims)[kDimsTogether]) const {
    const DHalves d;
    VHalves rows[kDimsTogether];
    VHalves next[kDimsTogether];
#pragma GCC unroll 8
    for (int64_t i = 0; i < kDimsTogether; ++i) {
      rows[i] = LoadRuns<8>(d, row_ + dim + i * dim_, dim_);
    }
    // Neighbours of every stage are four apart before it: three stages leave dims.
    Interleave(d, rows, next);
    Interleave(d, next, rows);
    Interleave(d, rows, dims);
  }
  HWY_INLINE VF Load(int64_t dim) const {
    alignas(64) uint16_t values[kLanes];
    for (int64_t i = 0; i < kSlots; ++i) values[i] = row_[dim + i * dim_];
    return Codec::Decode(values);
  }

 private:
  template <class D, class V>
  static HWY_INLINE void Interleave(D d, const V (&from)[kDimsTogether], V (&to)[kDimsTogether]) {
#pragma GCC unroll 4
    for (int64_t i = 0; i < kDimsTogether / 2; ++i) {
      to[2 * i] = hn::InterleaveLower(d, from[i], from[i + kDimsTogether / 2]);
      to[2 * i + 1] = hn::InterleaveUpper(d, from[i], from[i + kDimsTogether / 2]);
    }
  }

  const uint16_t* const values_;
  const int64_t dim_;
  const uint16_t* row_ = nullptr;
};
#else
#define KVASIR_DERIVES_FROM_HALVES 0
#endif

// kLanes slots at a time, dim by dim across them. Codec: of the keys.
template <class Codec, class Values>
class Deriver {
 public:
  explicit Deriver(const DeriveKeysArgs& args)
      : args_(args), norm_(args.derivation.key_norm.data()), values_(args) {}

  void Run() {
    FindStill();
    for (first_ = 0; first_ < kBlockTokens; first_ += kSlots) {
      const VF slots = hn::Iota(DF(), static_cast<float>(first_));
      wanted_ = hn::VecFromMask(
          DF(), hn::And(hn::Ge(slots, hn::Set(DF(), static_cast<float>(args_.begin))),
                        hn::Lt(slots, hn::Set(DF(), static_cast<float>(args_.end)))));
      values_.Enter(first_);
      turns_ = args_.turns + first_;
      const auto pairs = static_cast<int64_t>(args_.derivation.inv_freq.size());
      int64_t pair = 0;
      for (; pair + kDimsTogether <= pairs; pair += kDimsTogether) DerivePairs(pair, pairs);
      for (; pair < pairs; ++pair) {
        DerivePair(pair, pairs, values_.Load(pair), values_.Load(pair + pairs));
      }
      for (int64_t at = 2 * pairs; at < args_.layout->value_dim; ++at) {
        Store(at, Scaled(at, values_.Load(at)));
      }
    }
  }

 private:
  // Whether keys have the format and, where nothing turns or scales them, the bits of values.
#if KVASIR_DERIVES_FROM_HALVES
  static constexpr bool kCopies =
      std::is_same_v<Codec, F16Codec> && std::is_same_v<Values, StoredHalves<F16Codec>>;
#else
  static constexpr bool kCopies = false;
#endif

  // Which pairs of kDimsTogether are copied: most of a latent's (model/latent_attention.h).
  void FindStill() {
    if constexpr (!kCopies) return;
    const std::span<const float> frequencies = args_.derivation.inv_freq;
    const auto pairs = static_cast<int64_t>(frequencies.size());
    for (int64_t pair = 0; pair + kDimsTogether <= pairs; pair += kDimsTogether) {
      bool is_still = true;
      for (int64_t i = pair; i < pair + kDimsTogether; ++i) {
        is_still &= frequencies[static_cast<size_t>(i)] == 0 && norm_[i] == 1;
        is_still &= norm_[i + pairs] == 1;
      }
      still_.push_back(is_still);
    }
  }

  HWY_INLINE void DerivePairs(int64_t pair, int64_t pairs) {
    if constexpr (kCopies) {
      if (still_[static_cast<size_t>(pair / kDimsTogether)]) {
        CopyDims(pair);
        return CopyDims(pair + pairs);
      }
    }
    VF x[kDimsTogether];
    VF y[kDimsTogether];
    values_.Load(pair, x);
    values_.Load(pair + pairs, y);
#pragma GCC unroll 8
    for (int64_t i = 0; i < kDimsTogether; ++i) DerivePair(pair + i, pairs, x[i], y[i]);
  }
#if KVASIR_DERIVES_FROM_HALVES
  HWY_INLINE void CopyDims(int64_t dim) {
    const DHalves d;
    const VHalves wanted = hn::TruncateTo(d, hn::BitCast(DU(), wanted_));
    VHalves stored[kDimsTogether];
    values_.LoadStored(dim, stored);
    auto* const out = reinterpret_cast<uint16_t*>(args_.out) + dim * kBlockTokens + first_;
#pragma GCC unroll 8
    for (int64_t i = 0; i < kDimsTogether; ++i) {
      hn::Store(hn::And(wanted, stored[i]), d, out + i * kBlockTokens);
    }
  }
#endif
  HWY_INLINE void DerivePair(int64_t pair, int64_t pairs, VF x, VF y) {
    x = Scaled(pair, x);
    y = Scaled(pair + pairs, y);
    if (args_.derivation.inv_freq[static_cast<size_t>(pair)] != 0) {
      const VF sin = hn::Load(DF(), turns_);
      const VF cos = hn::Load(DF(), turns_ + kBlockTokens);
      turns_ += 2 * kBlockTokens;
      const VF turned = hn::NegMulAdd(y, sin, hn::Mul(x, cos));
      y = hn::MulAdd(x, sin, hn::Mul(y, cos));
      x = turned;
    }
    Store(pair, x);
    Store(pair + pairs, y);
  }
  HWY_INLINE VF Scaled(int64_t at, VF value) const {
    return hn::Mul(hn::Set(DF(), norm_[at]), value);
  }
  HWY_INLINE void Store(int64_t at, VF key) const {
    auto* const out = reinterpret_cast<typename Codec::Stored*>(args_.out);
    Codec::Encode(hn::And(wanted_, key), out + at * kBlockTokens + first_);
  }

  const DeriveKeysArgs& args_;
  const float* const norm_;
  Values values_;
  int first_ = 0;  // slot
  const float* turns_ = nullptr;
  VF wanted_;
  std::vector<bool> still_;
};

template <class Codec>
void DeriveAs(const DeriveKeysArgs& args) {
#if KVASIR_DERIVES_FROM_HALVES
  if (args.layout->value_codec.kind == KvCodec::Kind::kF16) {
    return Deriver<Codec, StoredHalves<F16Codec>>(args).Run();
  }
  if (args.layout->value_codec.kind == KvCodec::Kind::kBf16) {
    return Deriver<Codec, StoredHalves<Bf16Codec>>(args).Run();
  }
#endif
  Deriver<Codec, FloatRows>(args).Run();
}

}  // namespace

void MakeKeyTurnsHere(const KvKeyDerivation& derivation,
                      std::span<const Position, kBlockTokens> positions, float* turns) {
  MakeTurns(derivation, positions, turns);
}

void DeriveKeysHere(const DeriveKeysArgs& args) {
  if (args.codec.kind == KvCodec::Kind::kF16) return DeriveAs<F16Codec>(args);
  DeriveAs<F32Codec>(args);
}

}  // namespace kvasir::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // KVASIR_KERNEL_TARGET

#if HWY_ONCE
namespace kvasir {

namespace {

// The definition's keys.
void DeriveScalar(const DeriveKeysArgs& args) {
  std::vector<float> tile(static_cast<size_t>(args.layout->value_dim) * kBlockTokens);
  DeriveKeyTile(args.derivation, *args.layout, args.values, args.positions, args.begin, args.end,
                tile.data());
  if (args.codec.kind == KvCodec::Kind::kF16) {
    std::transform(tile.begin(), tile.end(), reinterpret_cast<uint16_t*>(args.out), FloatToF16);
  } else {
    std::copy(tile.begin(), tile.end(), reinterpret_cast<float*>(args.out));
  }
}

}  // namespace

size_t KeyTurnFloats(const KvKeyDerivation& derivation) {
  const auto pairs = static_cast<size_t>(
      std::ranges::count_if(derivation.inv_freq, [](float frequency) { return frequency != 0; }));
  return pairs * 2 * kBlockTokens;
}

void MakeKeyTurns(Isa isa, const KvKeyDerivation& derivation,
                  std::span<const Position, kBlockTokens> positions, float* turns) {
  isa = VectorsOf(isa);
#if HWY_TARGETS & HWY_AVX3_DL
  if (isa == Isa::kAvx512) return N_AVX3_DL::MakeKeyTurnsHere(derivation, positions, turns);
#endif
#if HWY_TARGETS & HWY_AVX2
  if (isa == Isa::kAvx2) return N_AVX2::MakeKeyTurnsHere(derivation, positions, turns);
#endif
#if HWY_TARGETS & HWY_NEON
  if (isa == Isa::kNeon) return N_NEON::MakeKeyTurnsHere(derivation, positions, turns);
#endif
  // The definition makes its own.
}

void DeriveKeys(Isa isa, const DeriveKeysArgs& args) {
  KVASIR_CHECK(args.codec.kind == KvCodec::Kind::kF16 || args.codec.kind == KvCodec::Kind::kF32);
  isa = VectorsOf(isa);
#if HWY_TARGETS & HWY_AVX3_DL
  if (isa == Isa::kAvx512) return N_AVX3_DL::DeriveKeysHere(args);
#endif
#if HWY_TARGETS & HWY_AVX2
  if (isa == Isa::kAvx2) return N_AVX2::DeriveKeysHere(args);
#endif
#if HWY_TARGETS & HWY_NEON
  if (isa == Isa::kNeon) return N_NEON::DeriveKeysHere(args);
#endif
  DeriveScalar(args);
}

}  // namespace kvasir
#endif  // HWY_ONCE
