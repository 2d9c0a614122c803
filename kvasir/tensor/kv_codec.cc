#include "kvasir/tensor/kv_codec.h"

#include <charconv>

#include "kvasir/base/check.h"

namespace kvasir {
namespace {

constexpr int kMaxTurboDim = 512;

Error Unknown(std::string_view name) {
  return {ErrorCode::kInvalidArgument,
          "KV codec '" + std::string(name) +
              "' is unknown; use f32, f16, bf16, affine<bits>:<group> (bits 2, 3, 4, 5, 6 or 8, "
              "group 32, 64 or 128, then +f32 for f32 scales, +rot to rotate rows first) or "
              "turbo<bits> (2, 3 or 4)"};
}

// Reads a whole number off the front of `text`; -1 if there is none.
int TakeNumber(std::string_view& text) {
  int value = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return -1;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return value;
}

bool TakePrefix(std::string_view& text, std::string_view prefix) {
  if (!text.starts_with(prefix)) return false;
  text.remove_prefix(prefix.size());
  return true;
}

bool IsAffineBits(int bits) { return (bits >= 2 && bits <= 6) || bits == 8; }
bool IsTurboBits(int bits) { return bits >= 2 && bits <= 4; }
bool IsGroup(int group) { return group == 32 || group == 64 || group == 128; }

}  // namespace

KvCodec KvCodec::Affine(int bits, int group, Scales scales, bool rotated) {
  KVASIR_CHECK(IsAffineBits(bits) && IsGroup(group));
  return {Kind::kAffine, static_cast<uint8_t>(bits), static_cast<uint16_t>(group), scales, rotated};
}

KvCodec KvCodec::Turbo(int bits) {
  KVASIR_CHECK(IsTurboBits(bits));
  return {.kind = Kind::kTurbo, .bits = static_cast<uint8_t>(bits)};
}

size_t KvCodec::HeadBytes(int64_t dim) const {
  const auto size = static_cast<size_t>(dim);
  switch (kind) {
    case Kind::kF32:
    case Kind::kF16:
    case Kind::kBf16:
      return size * ElementBytes() * kBlockTokens;
    case Kind::kAffine:
      return CodeBytes(dim) + size / group * 2 * ScaleBytes() * kBlockTokens;
    case Kind::kTurbo:
      return CodeBytes(dim) + sizeof(float) * kBlockTokens;
    case Kind::kFromValue:
      return 0;
  }
  return 0;
}

std::string KvCodec::name() const {
  switch (kind) {
    case Kind::kF32:
      return "f32";
    case Kind::kF16:
      return "f16";
    case Kind::kBf16:
      return "bf16";
    case Kind::kAffine:
      return "affine" + std::to_string(bits) + ":" + std::to_string(group) +
             (scales == Scales::kF32 ? "+f32" : "") + (rotated ? "+rot" : "");
    case Kind::kTurbo:
      return "turbo" + std::to_string(bits);
    case Kind::kFromValue:
      return "from-value";
  }
  return "";
}

Result<KvCodec> KvCodec::FromName(std::string_view name) {
  for (const Kind kind : {Kind::kF32, Kind::kF16, Kind::kBf16, Kind::kFromValue}) {
    if (KvCodec{kind}.name() == name) return KvCodec{kind};
  }
  std::string_view rest = name;
  if (TakePrefix(rest, "turbo")) {
    const int bits = TakeNumber(rest);
    if (!IsTurboBits(bits) || !rest.empty()) return Unknown(name);
    return Turbo(bits);
  }
  if (TakePrefix(rest, "affine")) {
    const int bits = TakeNumber(rest);
    if (!IsAffineBits(bits) || !TakePrefix(rest, ":")) return Unknown(name);
    const int group = TakeNumber(rest);
    if (!IsGroup(group)) return Unknown(name);
    const Scales scales = TakePrefix(rest, "+f32") ? Scales::kF32 : Scales::kF16;
    const bool rotated = TakePrefix(rest, "+rot");
    if (!rest.empty()) return Unknown(name);
    return Affine(bits, group, scales, rotated);
  }
  return Unknown(name);
}

Status KvCodec::Validate(int64_t dim) const {
  const auto unsuitable = [&](const std::string& need) {
    return Error{ErrorCode::kInvalidArgument,
                 "KV codec " + name() + " needs " + need + ", not " + std::to_string(dim)};
  };
  if (dim <= 0) return unsuitable("a head size of at least 1");
  if (kind == Kind::kAffine && dim % group != 0) {
    return unsuitable("a head size that is a multiple of its group");
  }
  if (is_packed() && dim % 16 != 0) return unsuitable("a head size that is a multiple of 16");
  if (rotates() && dim > kMaxTurboDim) return unsuitable("a head size of at most 512");
  return {};
}

}  // namespace kvasir
