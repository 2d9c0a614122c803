#include "kvasir/convert/write_gguf.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "kvasir/base/file.h"
#include "kvasir/base/thread_pool.h"
#include "kvasir/convert/gguf_pairs_of.h"
#include "kvasir/formats/gguf_writer.h"
#include "kvasir/model/families.h"
#include "kvasir/model/gguf_names.h"

namespace kvasir {
namespace {

constexpr int kBlock = 32;
constexpr int64_t kBatchNumbers = int64_t{4} << 20;

const GgufType* TypeNamed(std::string_view name) {
  for (const GgufType& type : AllGgufTypes()) {
    if (type.name == name) return &type;
  }
  return nullptr;
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

// Scale and codes as PackedMatrix::SetRow makes them: for the scale as stored.
void EncodeBlock(const float* values, int limit, std::byte* block) {
  float largest = 0;
  for (int i = 0; i < kBlock; ++i) largest = std::max(largest, std::fabs(values[i]));
  const uint16_t bits = FloatToF16(largest / static_cast<float>(limit));
  const float scale = F16ToFloat(bits);
  StoreHalf(bits, block);
  int codes[kBlock];
  const auto most = static_cast<float>(limit);
  for (int i = 0; i < kBlock; ++i) {
    const float quotient = scale > 0 ? std::nearbyint(values[i] / scale) : 0.0f;
    codes[i] = static_cast<int>(std::clamp(quotient, -most, most));
  }
  for (int i = 0; limit == 127 && i < kBlock; ++i) {
    block[2 + i] = static_cast<std::byte>(static_cast<int8_t>(codes[i]));
  }
  for (int i = 0; limit == 7 && i < kBlock / 2; ++i) {
    block[2 + i] = static_cast<std::byte>((codes[i] + 8) | (codes[i + kBlock / 2] + 8) << 4);
  }
}

void EncodeRow(const float* row, int64_t count, const GgufType& type, std::byte* out) {
  for (int64_t i = 0; i < count; i += type.block_elements) {
    std::byte* const block = out + i / type.block_elements * type.block_bytes;
    if (type.block_elements == kBlock) {
      EncodeBlock(row + i, type.name == "Q8_0" ? 127 : 7, block);
    } else if (type.block_bytes == 4) {
      std::memcpy(block, row + i, sizeof(float));
    } else {
      StoreHalf(type.name == "F16" ? FloatToF16(row[i]) : FloatToBf16(row[i]), block);
    }
  }
}

struct Export {
  const SourceTensor* source = nullptr;
  std::string decoder_name;
  GgufDeclaration declaration;
};

// "model.layers.0..." without what wrappers put before it; empty for what no decoder reads.
std::string DecoderName(const std::string& name) {
  for (const std::string_view prefix :
       {"model.language_model.", "language_model.model.", "language_model.", "model."}) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return name;
}

Result<std::vector<Export>> PlanExports(const ModelSource& source, const ModelConfig& config,
                                        const GgufType* matrix_type) {
  const DecoderSpec spec = MakeDecoderSpec(config);
  const GgufType* const table_type = matrix_type->name == "Q4_0" ? TypeNamed("Q8_0") : matrix_type;
  std::vector<Export> exports;
  for (const SourceTensor& tensor : source.tensors()) {
    if (IsKnownUnused(spec, tensor.name)) continue;
    const std::string decoder_name = DecoderName(tensor.name);
    if (config.tie_word_embeddings && decoder_name == "lm_head.weight") continue;
    std::string name = GgufTensorName(config.family, decoder_name);
    if (name == decoder_name || !tensor.rows.read_row) {
      return {ErrorCode::kUnsupported, source.path() + ": tensor '" + tensor.name +
                                           "' has no name in a GGUF file of this architecture"};
    }
    const bool is_table = name == "token_embd.weight" || name == "output.weight";
    const GgufType* type = is_table ? table_type : matrix_type;
    if (tensor.shape.size() == 1) {
      type = TypeNamed("F32");
    } else if (tensor.shape.back() % type->block_elements != 0) {
      type = TypeNamed("F16");
    }
    exports.push_back({&tensor, decoder_name, {std::move(name), type, tensor.shape}});
  }
  return exports;
}

// Rows of one tensor as the file wants them: in its order, with its offset.
class RowReader {
 public:
  RowReader(const Export& tensor, const ModelConfig& config, float norm_offset)
      : source_(*tensor.source),
        head_dim_(config.head_dim),
        is_turned_(HasInterleavedRows(config.family, tensor.decoder_name)),
        offset_(source_.offset +
                (source_.shape.size() == 1 && tensor.decoder_name.find("norm") != std::string::npos
                     ? norm_offset
                     : 0)) {}

  void Read(int64_t row, float* out) const {
    const bool is_vector = source_.shape.size() == 1;
    const int64_t columns = source_.shape.back();
    source_.rows.read_row(is_turned_ && !is_vector ? DecoderRow(row, head_dim_) : row, out);
    for (int64_t i = 0; offset_ != 0 && i < columns; ++i) out[i] += offset_;
    if (!is_turned_ || !is_vector) return;
    const std::vector<float> stored(out, out + columns);
    for (int64_t i = 0; i < columns; ++i) {
      out[i] = stored[static_cast<size_t>(DecoderRow(i, head_dim_))];
    }
  }

 private:
  const SourceTensor& source_;
  const int64_t head_dim_;
  const bool is_turned_;
  const float offset_;
};

// generation_config.json wins over config.json.
Status AddStops(const ModelSource& source, ModelConfig* config) {
  for (const SourceFile& file : source.files()) {
    if (file.name != "generation_config.json") continue;
    KVASIR_TRY(const Json json, Json::Parse(file.contents));
    const auto generation = GenerationConfig::Parse(json);
    if (!generation.ok()) return WithContext(generation.error(), source.path() + "/" + file.name);
    if (!generation->eos_token_ids.empty()) config->eos_token_ids = generation->eos_token_ids;
  }
  return {};
}

}  // namespace

Status WriteGguf(const ModelSource& source, const std::string& path, const GgufOptions& options) {
  if (FileExists(path) || DirectoryExists(path)) {
    return {ErrorCode::kFailedPrecondition, path + " exists; remove it or choose another name"};
  }
  KVASIR_TRY(const GgufType* const type, MatrixType(options.type));
  auto config = ModelConfig::Parse(source.config());
  if (!config.ok()) return WithContext(config.error(), source.path() + "/config.json");
  KVASIR_TRY_OK(AddStops(source, &*config));
  KVASIR_TRY(const GgufPairs pairs, GgufPairsOf(source, *config));
  KVASIR_TRY(const std::vector<Export> exports, PlanExports(source, *config, type));
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
  for (size_t index = 0; index < exports.size(); ++index) {
    const Export& tensor = exports[index];
    const RowReader reader(tensor, *config, norm_offset);
    const GgufType& row_type = *tensor.declaration.type;
    const int64_t columns = tensor.declaration.shape.back();
    const size_t row_bytes =
        static_cast<size_t>(columns / row_type.block_elements * row_type.block_bytes);
    const auto rows = static_cast<int64_t>(tensor.declaration.bytes() / row_bytes);
    const int64_t batch = std::clamp<int64_t>(kBatchNumbers / columns, 1, rows);
    std::vector<std::byte> bytes(static_cast<size_t>(batch) * row_bytes);
    for (int64_t first = 0; first < rows; first += batch) {
      const auto count = static_cast<size_t>(std::min(batch, rows - first));
      pool.For(count, [&](size_t begin, size_t end) {
        std::vector<float> row(static_cast<size_t>(columns));
        for (size_t i = begin; i < end; ++i) {
          reader.Read(first + static_cast<int64_t>(i), row.data());
          EncodeRow(row.data(), columns, row_type, bytes.data() + i * row_bytes);
        }
      });
      KVASIR_TRY_OK(writer.Append(index, std::span(bytes).first(count * row_bytes)));
      done += count * row_bytes;
      if (options.progress) options.progress(done, total);
    }
    if (!tensor.source->rows.is_mapped) continue;
    for (const std::span<const std::byte> pages : tensor.source->rows.source) ReleasePages(pages);
  }
  return writer.Finish();
}

}  // namespace kvasir
