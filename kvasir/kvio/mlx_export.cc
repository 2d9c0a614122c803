// Rows of blocks into an mlx-lm prompt cache.
// Deliberately refuses what MLX has no class for, unless the caller accepts the loss.
#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "kvasir/formats/safetensors_writer.h"
#include "kvasir/kvio/mlx_prompt_cache.h"
#include "kvasir/kvio/mlx_rows.h"
#include "kvasir/tensor/packed_codec.h"

namespace kvasir {
namespace {

using Kind = MlxLayerCache::Kind;
using Loss = MlxExportOptions::Loss;

// How one layer is written.
struct LayerPlan {
  int layer = 0;
  Kind kind = Kind::kAll;
  KvCodec key_codec;  // in the file: dense, or affine for kQuantized
  KvCodec value_codec;
  // Positions written: [0, head_end) and [tail_begin, end).
  Position head_end = 0;
  Position tail_begin = 0;
};

std::string_view ClassName(Kind kind) {
  switch (kind) {
    case Kind::kAll:
      return "KVCache";
    case Kind::kRotating:
      return "RotatingKVCache";
    case Kind::kQuantized:
      return "QuantizedKVCache";
  }
  return "";
}

DType DTypeOf(const KvCodec& codec) {
  if (codec.kind == KvCodec::Kind::kF32) return DType::kF32;
  return codec.kind == KvCodec::Kind::kBf16 ? DType::kBf16 : DType::kF16;
}

class Planner {
 public:
  Planner(const KvSnapshot& snapshot, Loss loss) : snapshot_(snapshot), loss_(loss) {}

  Result<LayerPlan> Plan(int layer) {
    const KvLayerSpec& spec = snapshot_.spec().layers[static_cast<size_t>(layer)];
    name_ = "layer " + std::to_string(layer);
    if (spec.is_recurrent()) {
      return Refuse("is recurrent, and prompt caches of such states cannot be written");
    }
    LayerPlan plan = {.layer = layer};
    KVASIR_TRY_OK(PlanRows(spec.retention, &plan));
    KVASIR_TRY_OK(PlanCodecs(spec.layout, &plan));
    return plan;
  }

 private:
  Error Refuse(const std::string& why) const {
    return {ErrorCode::kUnsupported, name_ + " " + why};
  }

  Status PlanRows(const RetentionSpec& retention, LayerPlan* plan) const {
    const Position end = snapshot_.end();
    const bool is_window = retention.kind == RetentionSpec::Kind::kWindow;
    if (is_window) {
      plan->kind = Kind::kRotating;
      if (end <= retention.size) return {};
      plan->head_end = retention.keep;
      plan->tail_begin = end - (retention.size - retention.keep);
      return {};
    }
    if (retention.kind == RetentionSpec::Kind::kAll) return {};
    const std::string has = "has the retention '" + retention.name() + "', for which MLX has no " +
                            "class that can be saved";
    if (loss_ == Loss::kRefuse) return Refuse(has + "; accept the loss to write all its rows");
    if (snapshot_.evicted() || snapshot_.layer(plan->layer).first_block() > 0) {
      return Refuse(has + ", and it does not hold all rows any more");
    }
    return {};
  }

  Status PlanCodecs(const KvLayout& layout, LayerPlan* plan) const {
    const KvLayer& rows = snapshot_.layer(plan->layer);
    const KvBlockLayout first =
        layout.BlockAt(rows.head().empty() ? rows.first_block() : rows.head_first());
    const KvBlockLayout last = layout.BlockAt(rows.end_block() - 1);
    plan->key_codec = last.key_codec;
    plan->value_codec = last.value_codec;
    const bool is_mixed =
        first.key_codec != last.key_codec || first.value_codec != last.value_codec;
    if (!is_mixed && layout.dense_recent == 0) {
      if (last.key_codec.is_dense() && last.value_codec.is_dense()) return {};
      if (plan->kind == Kind::kAll && last.key_codec == last.value_codec &&
          last.key_codec.kind == KvCodec::Kind::kAffine && !last.key_codec.rotated) {
        plan->kind = Kind::kQuantized;
        return {};
      }
    }
    if (last.key_codec.kind == KvCodec::Kind::kFromValue) {
      return Refuse("derives its keys from its values, which cannot be written");
    }
    if (loss_ == Loss::kRefuse) {
      return Refuse("has the codecs " + last.key_codec.name() + " / " + last.value_codec.name() +
                    (is_mixed ? " in some blocks only" : "") +
                    (layout.dense_recent > 0 ? " with dense recent rows" : "") +
                    ", for which MLX has no " + (plan->kind == Kind::kRotating ? "rotating " : "") +
                    "class; accept the loss to write it as " + layout.dense_codec.name());
    }
    if (plan->key_codec.is_packed()) plan->key_codec = layout.dense_codec;
    if (plan->value_codec.is_packed()) plan->value_codec = layout.dense_codec;
    return {};
  }

  const KvSnapshot& snapshot_;
  Loss loss_;
  std::string name_;
};

// One tensor of the file.
struct Piece {
  TensorDeclaration declaration;
  size_t plan = 0;
  bool is_keys = false;
  enum class Part { kRows, kScales, kBiases, kScalar } part = Part::kRows;
  int32_t scalar = 0;
};

class Exporter {
 public:
  Exporter(const KvSnapshot& snapshot, const MlxExportOptions& options)
      : snapshot_(snapshot), options_(options) {}

  Status Plan() {
    KVASIR_TRY_OK(snapshot_.Restorable());
    if (snapshot_.end() == 0) {
      return {ErrorCode::kUnsupported, "the sequence is empty, which mlx-lm cannot load"};
    }
    Planner planner(snapshot_, options_.loss);
    for (size_t i = 0; i < snapshot_.spec().layers.size(); ++i) {
      if (snapshot_.spec().layers[i].shares_layer >= 0) continue;  // MLX has no cache for it
      KVASIR_TRY(LayerPlan plan, planner.Plan(static_cast<int>(i)));
      plans_.push_back(plan);
    }
    for (const LayerPlan& plan : plans_) {
      for (const int64_t number : Numbers(plan)) {
        if (number <= std::numeric_limits<int32_t>::max()) continue;
        return {ErrorCode::kUnsupported, "layer " + std::to_string(plan.layer) +
                                             " has the number " + std::to_string(number) +
                                             ", MLX stores at most 2^31 - 1"};
      }
    }
    for (size_t i = 0; i < plans_.size(); ++i) Declare(i);
    // Wide elements first keep the data aligned.
    std::stable_sort(pieces_.begin(), pieces_.end(), [](const Piece& a, const Piece& b) {
      return DTypeBytes(a.declaration.dtype) > DTypeBytes(b.declaration.dtype);
    });
    return {};
  }

  Status Write(const std::string& path, const std::map<std::string, std::string>& metadata) {
    std::vector<TensorDeclaration> declarations;
    for (const Piece& piece : pieces_) declarations.push_back(piece.declaration);
    KVASIR_TRY(SafetensorsWriter writer,
               SafetensorsWriter::Create(path, declarations, Metadata(metadata)));
    for (const Piece& piece : pieces_) KVASIR_TRY_OK(WritePiece(piece, &writer));
    return writer.Finish();
  }

 private:
  bool scalars() const { return options_.version == MlxCacheVersion::kScalars; }
  int64_t RowCount(const LayerPlan& plan) const {
    return plan.head_end + snapshot_.end() - plan.tail_begin;
  }

  void DeclareTensor(size_t plan, const std::string& part, bool is_keys, Piece::Part kind,
                     DType dtype, int64_t width) {
    const KvLayout& layout = LayoutOf(plans_[plan]);
    pieces_.push_back({{std::to_string(plan) + "." + part,
                        dtype,
                        {1, layout.kv_heads, RowCount(plans_[plan]), width}},
                       plan,
                       is_keys,
                       kind});
  }

  void DeclarePlane(size_t plan, const std::string& part, bool is_keys, const KvCodec& codec,
                    int dim) {
    if (codec.is_dense()) {
      DeclareTensor(plan, part, is_keys, Piece::Part::kRows, DTypeOf(codec), dim);
      return;
    }
    const DType scales = codec.scales == KvCodec::Scales::kF32 ? DType::kF32 : DType::kF16;
    DeclareTensor(plan, part + ".0", is_keys, Piece::Part::kRows, DType::kU32,
                  int64_t{dim} * codec.bits / 32);
    DeclareTensor(plan, part + ".1", is_keys, Piece::Part::kScales, scales, dim / codec.group);
    DeclareTensor(plan, part + ".2", is_keys, Piece::Part::kBiases, scales, dim / codec.group);
  }

  void Declare(size_t index) {
    const LayerPlan& plan = plans_[index];
    const KvLayout& layout = LayoutOf(plan);
    DeclarePlane(index, "0", true, plan.key_codec, layout.key_dim);
    DeclarePlane(index, "1", false, plan.value_codec, layout.value_dim);
    if (!scalars()) return;
    const std::vector<int64_t> numbers = Numbers(plan);
    for (size_t i = 0; i < numbers.size(); ++i) {
      pieces_.push_back({{std::to_string(index) + "." + std::to_string(2 + i), DType::kI32, {}},
                         index,
                         false,
                         Piece::Part::kScalar,
                         static_cast<int32_t>(numbers[i])});
    }
  }

  // The numbers of a cache's state, in the order of scalars.
  std::vector<int64_t> Numbers(const LayerPlan& plan) const {
    const RetentionSpec& retention =
        snapshot_.spec().layers[static_cast<size_t>(plan.layer)].retention;
    switch (plan.kind) {
      case Kind::kAll:
        return {snapshot_.end()};
      case Kind::kRotating:
        return {snapshot_.end(), retention.keep, retention.size, RowCount(plan)};
      case Kind::kQuantized:
        return {snapshot_.end(), plan.key_codec.group, plan.key_codec.bits};
    }
    return {};
  }

  // The same in the order of meta_state.
  std::vector<int64_t> MetaNumbers(const LayerPlan& plan) const {
    const std::vector<int64_t> numbers = Numbers(plan);
    if (plan.kind == Kind::kAll) return {};
    if (plan.kind == Kind::kQuantized) return numbers;
    return {numbers[1], numbers[2], numbers[0], numbers[3]};
  }

  MlxMetadata Metadata(const std::map<std::string, std::string>& user) const {
    MlxMetadata out;
    for (const auto& [key, value] : user) out[(scalars() ? "0." : "1.") + key] = value;
    int next_scalar = 1;
    if (scalars()) out["2.0"] = "";
    for (size_t i = 0; i < plans_.size(); ++i) {
      const std::string index = std::to_string(i);
      out[(scalars() ? "1." : "2.") + index] = ClassName(plans_[i].kind);
      if (scalars()) {
        for (size_t part = 0; part < Numbers(plans_[i]).size(); ++part) {
          const std::string entry = "2." + std::to_string(next_scalar++);
          out[entry + ".0"] = index + "." + std::to_string(2 + part);
          out[entry + ".1"] = "scalar";
        }
        continue;
      }
      const std::vector<int64_t> numbers = MetaNumbers(plans_[i]);
      if (numbers.empty()) out["0." + index] = "";
      for (size_t part = 0; part < numbers.size(); ++part) {
        out["0." + index + "." + std::to_string(part)] = std::to_string(numbers[part]);
      }
    }
    return out;
  }

  const KvLayout& LayoutOf(const LayerPlan& plan) const {
    return snapshot_.spec().layers[static_cast<size_t>(plan.layer)].layout;
  }

  Status WritePiece(const Piece& piece, SafetensorsWriter* writer) {
    const std::string& name = piece.declaration.name;
    if (piece.part == Piece::Part::kScalar) {
      return writer->Append(name, std::as_bytes(std::span(&piece.scalar, 1)));
    }
    const LayerPlan& plan = plans_[piece.plan];
    for (int head = 0; head < LayoutOf(plan).kv_heads; ++head) {
      MlxRowBytes bytes;
      for (Position p = 0; p < plan.head_end; ++p) AppendRow(plan, p, head, piece.is_keys, &bytes);
      for (Position p = plan.tail_begin; p < snapshot_.end(); ++p) {
        AppendRow(plan, p, head, piece.is_keys, &bytes);
      }
      const std::vector<std::byte>& part = piece.part == Piece::Part::kRows     ? bytes.rows
                                           : piece.part == Piece::Part::kScales ? bytes.scales
                                                                                : bytes.biases;
      KVASIR_TRY_OK(writer->Append(name, part));
    }
    return {};
  }

  void AppendRow(const LayerPlan& plan, Position position, int head, bool is_keys,
                 MlxRowBytes* out) const {
    const KvLayout& layout = LayoutOf(plan);
    const KvCodec& codec = is_keys ? plan.key_codec : plan.value_codec;
    const int dim = is_keys ? layout.key_dim : layout.value_dim;
    const KvLayer& rows = snapshot_.layer(plan.layer);
    const int64_t index = position / kBlockTokens;
    if (!rows.Holds(index)) {
      // The oldest row of a full window: the next token takes its place before anyone reads it.
      out->rows.resize(out->rows.size() + static_cast<size_t>(dim) * codec.ElementBytes());
      return;
    }
    const KvBlockLayout block = layout.BlockAt(index);
    const std::byte* data = rows.view().block(index);
    const auto slot = static_cast<int>(position % kBlockTokens);
    const KvCodec& stored = is_keys ? block.key_codec : block.value_codec;
    if (stored == codec) {
      (is_keys ? AppendKeyRow : AppendValueRow)(block, data, head, slot, out);
      return;
    }
    std::vector<float> row(static_cast<size_t>(dim));
    if (is_keys) {
      DecodePackedKeyRow(stored, data + head * block.KeyHeadBytes(), slot, row);
    } else {
      DecodePackedValueRow(stored, data + block.KeyPlaneBytes() + head * block.ValueHeadBytes(),
                           slot, row);
    }
    AppendFloats(codec, row, &out->rows);
  }

  static void AppendFloats(const KvCodec& codec, const std::vector<float>& row,
                           std::vector<std::byte>* out) {
    const size_t bytes = codec.ElementBytes();
    for (const float value : row) {
      const uint16_t half =
          codec.kind == KvCodec::Kind::kBf16 ? FloatToBf16(value) : FloatToF16(value);
      const void* from = codec.kind == KvCodec::Kind::kF32 ? static_cast<const void*>(&value)
                                                           : static_cast<const void*>(&half);
      out->resize(out->size() + bytes);
      std::memcpy(out->data() + out->size() - bytes, from, bytes);
    }
  }

  const KvSnapshot& snapshot_;
  MlxExportOptions options_;
  std::vector<LayerPlan> plans_;
  std::vector<Piece> pieces_;
};

}  // namespace

Status ExportMlxPromptCache(const KvSnapshot& snapshot, const std::string& path,
                            const std::map<std::string, std::string>& metadata,
                            const MlxExportOptions& options) {
  Exporter exporter(snapshot, options);
  if (const Status status = exporter.Plan(); !status.ok()) {
    return WithContext(status.error(), path);
  }
  return exporter.Write(path, metadata);
}

}  // namespace kvasir
