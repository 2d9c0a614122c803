#include "kvasir/convert/write_gguf.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "kvasir/base/file.h"
#include "kvasir/base/system_info.h"
#include "kvasir/base/thread_pool.h"
#include "kvasir/convert/expert_stacks.h"
#include "kvasir/convert/gguf_delta_nets.h"
#include "kvasir/convert/gguf_hybrids.h"
#include "kvasir/convert/gguf_pairs_of.h"
#include "kvasir/convert/latent_stacks.h"
#include "kvasir/convert/row_batches.h"
#include "kvasir/convert/tensor_names.h"
#include "kvasir/convert/weight_encoder.h"
#include "kvasir/formats/gguf_llama_kin.h"
#include "kvasir/formats/gguf_rope.h"
#include "kvasir/formats/gguf_writer.h"
#include "kvasir/model/checkpoint_names.h"
#include "kvasir/model/families.h"
#include "kvasir/model/gguf_names.h"
#include "kvasir/model/mtp_head.h"
#include "kvasir/model/tensor_list.h"
#include "kvasir/tensor/quantize_group.h"

namespace kvasir {
namespace {

constexpr size_t kBlock = kQuantGroup;

const GgufType* TypeNamed(std::string_view name) {
  for (const GgufType& type : AllGgufTypes()) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

// The float type that most weights have. ERRORS: kInvalidArgument where most are quantized.
Result<std::string> StoredType(const ModelSource& source) {
  std::map<DType, int64_t> weights;
  int64_t others = 0;
  for (const SourceTensor& tensor : source.tensors()) {
    if (tensor.shape.size() < 2) continue;
    const int64_t count = RowCount(tensor.shape) * tensor.shape.back();
    (tensor.raw != nullptr && IsFloatType(tensor.dtype) ? weights[tensor.dtype] : others) += count;
  }
  const auto most =
      std::max_element(weights.begin(), weights.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != weights.end() && most->second > others) return std::string(DTypeName(most->first));
  return {ErrorCode::kInvalidArgument,
          source.path() +
              " is quantized in a way that is not kept in GGUF files; say what its "
              "weights become: f32, f16, bf16, q8_0 or q4_0"};
}

// ERRORS: kInvalidArgument, listing the names that exist.
Result<const GgufType*> MatrixType(const std::string& name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kTypes = {
      {{"f32", "F32"}, {"f16", "F16"}, {"bf16", "BF16"}, {"q8_0", "Q8_0"}, {"q4_0", "Q4_0"}}};
  for (const auto& [known, type] : kTypes) {
    if (known == name) return TypeNamed(type);
  }
  return {ErrorCode::kInvalidArgument, "type '" + name.substr(0, 40) +
                                           "' is not written to GGUF files; use f32, f16, bf16, "
                                           "q8_0 or q4_0"};
}

void StoreHalf(uint16_t bits, std::byte* to) { std::memcpy(to, &bits, sizeof(bits)); }

// False where the scale is beyond those of f16.
bool EncodeBlock(const float* values, int bits, std::byte* block) {
  const QuantizedGroup group = QuantizeGroup(values, bits);
  const auto& codes = group.codes;
  StoreHalf(group.scale, block);
  for (size_t i = 0; bits == 8 && i < kBlock; ++i) {
    block[2 + i] = static_cast<std::byte>(codes[i]);
  }
  for (size_t i = 0; bits == 4 && i < kBlock / 2; ++i) {
    block[2 + i] = static_cast<std::byte>((codes[i] + 8) | (codes[i + kBlock / 2] + 8) << 4);
  }
  return !IsInfinite(group.scale, DType::kF16);
}

// False where a finite number has no finite one to become.
bool EncodeRow(const float* row, int64_t count, const GgufType& type, std::byte* out) {
  bool fits = true;
  for (int64_t i = 0; i < count; i += type.block_elements) {
    std::byte* const block = out + i / type.block_elements * type.block_bytes;
    if (type.block_elements == kBlock) {
      fits &= EncodeBlock(row + i, type.name == "Q8_0" ? 8 : 4, block);
    } else if (type.block_bytes == 4) {
      std::memcpy(block, row + i, sizeof(float));
    } else {
      const DType dtype = type.name == "F16" ? DType::kF16 : DType::kBf16;
      const uint16_t bits = dtype == DType::kF16 ? FloatToF16(row[i]) : FloatToBf16(row[i]);
      StoreHalf(bits, block);
      fits &= !IsInfinite(bits, dtype) || std::isinf(row[i]);
    }
  }
  return fits;
}

// What becomes one tensor of the file.
struct Export {
  const SourceTensor* source = nullptr;
  std::vector<float> values;  // instead of a source
  std::string decoder_name;
  GgufDeclaration declaration;
};

// "layers.0..." without what wrappers put before it.
std::string DecoderName(const std::string& name) {
  for (const std::string_view prefix :
       {"model.language_model.", "language_model.model.", "language_model.", "model."}) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return name;
}

constexpr std::string_view kDraftHead = "mtp.shared_head.head.";

class ExportPlan {
 public:
  // `tensors` are those of `source` with experts stacked.
  ExportPlan(const ModelSource& source, const std::vector<SourceTensor>& tensors,
             const ModelConfig& config, int draft_layers, const GgufType* matrix_type)
      : source_(source),
        draft_layers_(draft_layers),
        tensors_(tensors),
        config_(config),
        matrix_type_(matrix_type),
        table_type_(matrix_type->name == "Q4_0" ? TypeNamed("Q8_0") : matrix_type) {}

  Result<std::vector<Export>> Make() {
    const DecoderSpec spec = MakeDecoderSpec(config_);
    AddDivisors();
    for (const SourceTensor& tensor : tensors_) {
      std::string name = DecoderTensorName(config_.family, DecoderName(tensor.name));
      if (config_.draft_layers > 0) {
        name = DraftTensorName(config_.num_hidden_layers, std::move(name));
      }
      const bool is_copy = name.starts_with("mtp.embed_tokens.") || name.starts_with(kDraftHead);
      const bool is_drafting = draft_layers_ > 0 && name.starts_with("mtp.") && !is_copy;
      if (!is_drafting && IsKnownUnused(spec, tensor.name)) continue;
      if (config_.tie_word_embeddings && name == "lm_head.weight") continue;
      KVASIR_TRY_OK(Add(tensor, name));
    }
    return std::move(exports_);
  }

 private:
  void AddDivisors() {
    const RopeConfig& rope = config_.rope_full;
    if (rope.type == RopeType::kLong) {
      AddNumbers(kGgufLongDivisors,
                 rope.takes_long ? rope.frequency_divisors : rope.other_divisors);
      AddNumbers(kGgufShortDivisors,
                 rope.takes_long ? rope.other_divisors : rope.frequency_divisors);
      return;
    }
    std::vector<float> divisors = GgufRopeDivisors(config_.rope_full, config_.global_head_dim);
    if (divisors.empty() && config_.family == ModelFamily::kGemma4) {
      // Its files have the tensor always, and no key of a scaling.
      divisors.assign(static_cast<size_t>(config_.global_head_dim / 2),
                      static_cast<float>(config_.rope_full.factor));
    }
    if (!divisors.empty()) AddNumbers(kGgufRopeDivisors, std::move(divisors));
  }

  void AddNumbers(std::string_view name, std::vector<float> values) {
    const auto count = static_cast<int64_t>(values.size());
    Export tensor;
    tensor.values = std::move(values);
    tensor.declaration = {std::string(name), TypeNamed("F32"), {count}};
    exports_.push_back(std::move(tensor));
  }

  Status Add(const SourceTensor& tensor, const std::string& name) {
    std::string file_name = GgufTensorName(config_, name);
    if (file_name == name || !tensor.rows.read_row) {
      return {ErrorCode::kUnsupported, source_.path() + ": tensor '" + tensor.name +
                                           "' has no name in a GGUF file of this architecture"};
    }
    if (RowCount(tensor.shape) * tensor.shape.back() == 0) {
      return {ErrorCode::kUnsupported,
              source_.path() + ": tensor '" + tensor.name + "' has no numbers"};
    }
    if (const auto layer = LayerOf(name); layer && *layer >= config_.num_hidden_layers) {
      return {ErrorCode::kCorrupt, source_.path() + ": tensor '" + tensor.name + "' is of layer " +
                                       std::to_string(*layer) + ", and config.json has " +
                                       std::to_string(config_.num_hidden_layers)};
    }
    const bool is_of_heads = name.find(".self_attn.") != std::string::npos;
    if (tensor.shape.size() == 3 && !is_of_heads && tensor.shape[0] != config_.experts.count) {
      return {ErrorCode::kCorrupt, source_.path() + ": tensor '" + tensor.name + "' is of " +
                                       std::to_string(tensor.shape[0]) +
                                       " experts, and config.json has " +
                                       std::to_string(config_.experts.count)};
    }
    exports_.push_back({&tensor, {}, name, Declare(std::move(file_name), tensor.shape)});
    return {};
  }

  GgufDeclaration Declare(std::string name, const std::vector<int64_t>& shape) const {
    const bool is_table = name == "token_embd.weight" || name == "output.weight" ||
                          name == "per_layer_token_embd.weight";
    const GgufType* type = is_table ? table_type_ : matrix_type_;
    // Readers expect routers, too, in 32 bits, and few numbers on which much hangs lose nothing.
    const auto is = [&](std::string_view part) { return name.find(part) != std::string::npos; };
    const bool is_sensitive = is(".ssm_alpha.") || is(".ssm_beta.") || is(".ssm_ba.");
    if (shape.size() <= 1 || is("ffn_gate_inp.") || is(".ssm_conv1d.") || is(".shortconv.conv.") ||
        is(".ssm_norm.") || name.ends_with(".ssm_a") || name.ends_with(".ssm_d") ||
        (is_sensitive && type->block_elements > 1)) {
      type = TypeNamed("F32");
    } else if (shape.back() % type->block_elements != 0) {
      type = TypeNamed("F16");
    }
    return {std::move(name), type, shape};
  }

  const ModelSource& source_;
  const int draft_layers_;
  const std::vector<SourceTensor>& tensors_;
  const ModelConfig& config_;
  const GgufType* const matrix_type_;
  const GgufType* const table_type_;
  std::vector<Export> exports_;
};

// Rows of one tensor as the file wants them: in its order, with its offset.
class RowReader {
 public:
  RowReader(const Export& tensor, const ModelConfig& config, float norm_offset)
      : tensor_(tensor),
        head_dim_(config.head_dim),
        columns_(tensor.declaration.shape.back()),
        is_vector_(tensor.declaration.shape.size() == 1),
        is_turned_(HasInterleavedRows(config.family, tensor.decoder_name)),
        norm_offset_(is_vector_ && IsNorm(tensor.decoder_name) ? norm_offset : 0) {}

  void Read(int64_t row, float* out) const {
    if (tensor_.source == nullptr) {
      std::copy(tensor_.values.begin(), tensor_.values.end(), out);
      return;
    }
    const SourceTensor& source = *tensor_.source;
    source.rows.read_row(is_turned_ && !is_vector_ ? DecoderRow(row, head_dim_) : row, out);
    const float offset = source.offset + norm_offset_;
    for (int64_t i = 0; offset != 0 && i < columns_; ++i) out[i] += offset;
    if (!is_turned_ || !is_vector_) return;
    const std::vector<float> stored(out, out + columns_);
    for (int64_t i = 0; i < columns_; ++i) {
      out[i] = stored[static_cast<size_t>(DecoderRow(i, head_dim_))];
    }
  }

 private:
  // That of a delta net is stored as it multiplies.
  static bool IsNorm(const std::string& name) {
    return name.find("norm") != std::string::npos &&
           name.find(".linear_attn.") == std::string::npos;
  }

  const Export& tensor_;
  const int64_t head_dim_;
  const int64_t columns_;
  const bool is_vector_;
  const bool is_turned_;
  const float norm_offset_;
};

// generation_config.json wins over config.json, but for BOS, which it may have alone.
Status AddGeneration(const ModelSource& source, ModelConfig* config) {
  for (const SourceFile& file : source.files()) {
    if (file.name != "generation_config.json") continue;
    KVASIR_TRY(const Json json, Json::Parse(file.contents));
    const auto generation = GenerationConfig::Parse(json);
    if (!generation.ok()) return WithContext(generation.error(), source.path() + "/" + file.name);
    if (!generation->eos_token_ids.empty()) config->eos_token_ids = generation->eos_token_ids;
    if (!config->bos_token_id) config->bos_token_id = generation->bos_token_id;
    config->suppressed_tokens = generation->suppress_tokens;
    config->generation = *generation;
  }
  return {};
}

// Whether the decoder asks for none of it: `unread` names tensors as they are stored, quantized
// modules by their parts. Of a module that is read it may name others (scales of a cache).
bool IsUnread(const SourceTensor& tensor, const std::set<std::string>& unread) {
  if (unread.contains(tensor.name)) return true;
  constexpr std::string_view kWeight = "weight";
  if (tensor.raw != nullptr || !tensor.name.ends_with(kWeight)) return false;
  const std::string module = tensor.name.substr(0, tensor.name.size() - kWeight.size());
  return unread.contains(module + "qweight") || unread.contains(module + "weight_packed");
}

// Encodes the rows of one tensor, batch by batch, and gives the source's pages back.
class TensorWriter {
 public:
  TensorWriter(GgufWriter* writer, ThreadPool* pool, const std::function<void(uint64_t)>& progress)
      : writer_(*writer), pool_(*pool), progress_(progress) {}

  Status Write(size_t index, const Export& tensor, const RowReader& reader) {
    const GgufType& type = *tensor.declaration.type;
    const int64_t columns = tensor.declaration.shape.back();
    const auto row_bytes = static_cast<size_t>(columns / type.block_elements * type.block_bytes);
    const auto rows = static_cast<int64_t>(tensor.declaration.bytes() / row_bytes);
    KVASIR_TRY(const NumbersFit fit,
               EncodeRowBatches(
                   &pool_, {rows, columns, row_bytes, type.block_elements > 1},
                   [&](int64_t row, float* out) { reader.Read(row, out); },
                   [&](int64_t, const float* row, std::byte* out) {
                     return EncodeRow(row, columns, type, out);
                   },
                   [&](std::span<const std::byte> bytes) -> Status {
                     KVASIR_TRY_OK(writer_.Append(index, bytes));
                     progress_(bytes.size());
                     return {};
                   }));
    if (fit == NumbersFit::kNotFinite) return NotFinite(NameOf(tensor), type.name);
    if (fit == NumbersFit::kBeyondType) {
      return {ErrorCode::kInvalidArgument,
              "tensor '" + NameOf(tensor) + "' has numbers beyond those of " +
                  std::string(type.name) + "; choose another type, bf16 or f32"};
    }
    if (tensor.source == nullptr || !tensor.source->rows.is_mapped) return {};
    for (const std::span<const std::byte> pages : tensor.source->rows.source) ReleasePages(pages);
    return {};
  }

 private:
  static std::string NameOf(const Export& tensor) {
    return tensor.source == nullptr ? tensor.declaration.name : tensor.source->name;
  }

  GgufWriter& writer_;
  ThreadPool& pool_;
  const std::function<void(uint64_t)>& progress_;
};

}  // namespace

Status WriteGguf(const ModelSource& source, const std::string& path, const GgufOptions& options) {
  KVASIR_TRY(const std::string type_name,
             options.type == "stored" ? StoredType(source) : Result<std::string>(options.type));
  KVASIR_TRY(const GgufType* const type, MatrixType(type_name));
  KVASIR_TRY_OK(CheckCanBeDecoded(source));
  if (type->block_elements == kBlock) KVASIR_TRY_OK(source.CheckCanBeQuantized());
  auto config = ModelConfig::Parse(source.config());
  if (!config.ok()) return WithContext(config.error(), source.path() + "/config.json");
  KVASIR_TRY_OK(AddGeneration(source, &*config));
  int draft_layers = 0;
  if (MtpHead::IsKnownTo(config->family) && source.checkpoint() != nullptr) {
    config->norms_hold_offset = HoldsNormOffset(*config, *source.checkpoint());
    KVASIR_TRY(const TensorList listed, ListTensors(*source.checkpoint(), *config));
    draft_layers = listed.has_mtp_head ? 1 : 0;
  }
  KVASIR_TRY(const GgufPairs pairs, GgufPairsOf(source, *config, draft_layers));
  KVASIR_TRY(const std::vector<std::string> unread, UnreadTensorsOf(source));
  const std::set<std::string> unread_names(unread.begin(), unread.end());
  std::vector<SourceTensor> read;
  for (const SourceTensor& tensor : source.tensors()) {
    // Others might read them, and a bias that its folder ignores would be none there.
    if (!IsUnread(tensor, unread_names)) read.push_back(tensor);
  }
  auto stacked = StackExperts(read);
  if (!stacked.ok()) return WithContext(stacked.error(), source.path());
  // Gates and ups in one tensor have a name for Gemma's experts only.
  std::vector<SourceTensor> tensors = SplitGatesAndUps(*std::move(stacked), ".mlp");
  if (config->family == ModelFamily::kQwen35) tensors = GgufDeltaNets(std::move(tensors), *config);
  if (config->has_shared_mlp) {
    tensors = SplitSharedMlp(SplitGraniteExperts(std::move(tensors)), "mlp.shared_expert");
  }
  auto latents = StackLatents(GgufHybrids(std::move(tensors), *config), *config);
  if (!latents.ok()) return WithContext(latents.error(), source.path());
  tensors = *std::move(latents);
  KVASIR_TRY(const std::vector<Export> exports,
             ExportPlan(source, tensors, *config, draft_layers, type).Make());
  std::vector<GgufDeclaration> declarations;
  uint64_t total = 0;
  for (const Export& tensor : exports) {
    declarations.push_back(tensor.declaration);
    total += tensor.declaration.bytes();
  }
  KVASIR_TRY(GgufWriter writer, GgufWriter::Create(path, pairs, std::move(declarations)));
  ThreadPool pool(options.threads == 0 ? AvailableCores() : options.threads);
  const float norm_offset = MakeDecoderSpec(*config).norm_offset;
  uint64_t done = 0;
  const std::function<void(uint64_t)> progress = [&](uint64_t bytes) {
    done += bytes;
    if (options.progress) options.progress(done, total);
  };
  TensorWriter encoder(&writer, &pool, progress);
  for (size_t index = 0; index < exports.size(); ++index) {
    KVASIR_TRY_OK(
        encoder.Write(index, exports[index], RowReader(exports[index], *config, norm_offset)));
  }
  return writer.Finish();
}

}  // namespace kvasir
