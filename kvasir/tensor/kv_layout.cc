#include "kvasir/tensor/kv_layout.h"

namespace kvasir {

std::string_view KvCodec::name() const {
  switch (kind) {
    case Kind::kF32:
      return "f32";
    case Kind::kF16:
      return "f16";
    case Kind::kBf16:
      return "bf16";
  }
  return "";
}

Result<KvCodec> KvCodec::FromName(std::string_view name) {
  for (const Kind kind : {Kind::kF32, Kind::kF16, Kind::kBf16}) {
    if (KvCodec{kind}.name() == name) return KvCodec{kind};
  }
  return {ErrorCode::kInvalidArgument,
          "KV codec '" + std::string(name) + "' is unknown; use f32, f16 or bf16"};
}

}  // namespace kvasir
