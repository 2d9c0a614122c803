// Every layout against what it means (tools/goldens/make_hf_weights.py), bit for bit, and what is
// refused.
#include "kvasir/formats/hf_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kvasir/formats/safetensors.h"
#include "kvasir/tensor/packed_matrix.h"

namespace kvasir {
namespace {

const SafetensorsFile& Golden() {
  static const SafetensorsFile file = *SafetensorsFile::Open(
      std::string(KVASIR_SOURCE_DIR) + "/testdata/formats/hf_weights.safetensors");
  return file;
}

HfQuantization QuantizationOf(const std::string& module) {
  std::string method = module.substr(0, module.find('/'));
  Json::Object config;
  if (method == "gptq_v2") {
    config.emplace_back("checkpoint_format", method);
    method = "gptq";
  }
  // Not where it is not needed: the tensors tell.
  const char first = module[module.find('/') + 1];
  if (method == "gptq" && first <= '9') config.emplace_back("bits", int64_t{first - '0'});
  if (module.ends_with("short_last_of_128")) config.emplace_back("group_size", int64_t{128});
  config.emplace_back("quant_method", method);
  return *HfQuantization::Parse(Json(config));
}

FindPart PartsOf(const std::string& module) {
  return [module](std::string_view part) { return Golden().Find((module + ".").append(part)); };
}

// A module of the goldens whose parts can be replaced.
class Module {
 public:
  explicit Module(const std::string& name) : quantization_(QuantizationOf(name)) {
    for (const std::string_view part : kHfParts) {
      const TensorView* const view = PartsOf(name)(part);
      if (view != nullptr) parts_[std::string(part)] = *view;
    }
  }
  TensorView& operator[](const std::string& part) { return parts_[part]; }
  void Erase(const std::string& part) { parts_.erase(part); }
  HfQuantization& quantization() { return quantization_; }
  Result<WeightTensor> Read() const {
    return HfWeights(
        [this](std::string_view part) {
          const auto found = parts_.find(std::string(part));
          return found == parts_.end() ? nullptr : &found->second;
        },
        &quantization_);
  }
  void ExpectError(ErrorCode code, const std::string& text) const {
    const auto read = Read();
    ASSERT_FALSE(read.ok()) << text;
    EXPECT_EQ(read.error().code, code) << read.error().message;
    EXPECT_NE(read.error().message.find(text), std::string::npos) << read.error().message;
  }

 private:
  std::map<std::string, TensorView> parts_;
  HfQuantization quantization_;
};

bool Same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// What is kept of them in memory. NaN in fp8 takes the inputs along that share its scale.
void ExpectKept(const std::string& name, const WeightTensor& weights, int64_t row,
                const std::vector<float>& wanted) {
  auto packed = *PackedMatrix::Allocate(weights.shape[0], weights.shape[1], weights.stored_format,
                                        weights.affine);
  CodedRow codes;
  weights.read_codes(row, &codes);
  packed.SetCodedRow(row, codes);
  std::vector<float> kept(wanted.size());
  packed.GetRow(row, kept.data());
  const auto [scale, order] = TraitsOfPacked(weights, weights.stored_format);
  ASSERT_TRUE(!order || order->size() == wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const size_t at = order ? static_cast<size_t>((*order)[i]) : i;
    const size_t begin = at / kFp8Inputs * kFp8Inputs;
    bool has_nan = false;
    for (size_t k = begin; k < std::min(begin + kFp8Inputs, wanted.size()); ++k) {
      has_nan = has_nan || std::isnan(wanted[k]);
    }
    const float expected = has_nan ? std::nanf("") : wanted[at];
    ASSERT_TRUE(Same(kept[i] * scale, expected)) << name << " row " << row << " input " << i;
  }
}

TEST(HfWeights, EveryLayoutIsWhatItMeans) {
  std::map<WeightFormat, int> formats;
  for (const auto& [tensor, decoded] : Golden().tensors()) {
    if (!tensor.ends_with(".decoded")) continue;
    const std::string name = tensor.substr(0, tensor.rfind('.'));
    const HfQuantization quantization = QuantizationOf(name);
    ASSERT_TRUE(IsHfQuantized(PartsOf(name))) << name;
    const auto weights = HfWeights(PartsOf(name), &quantization);
    ASSERT_TRUE(weights.ok()) << name << ": " << weights.error().message;
    ASSERT_EQ(weights->shape, decoded.shape) << name;
    ++formats[weights->stored_format];
    const int64_t columns = decoded.shape[1];
    std::vector<float> wanted(static_cast<size_t>(columns));
    std::vector<float> actual(static_cast<size_t>(columns));
    for (int64_t row = 0; row < decoded.shape[0]; ++row) {
      ReadFloats(decoded, row * columns, columns, wanted.data());
      weights->read_row(row, actual.data());
      for (size_t i = 0; i < wanted.size(); ++i) {
        ASSERT_TRUE(Same(actual[i], wanted[i])) << name << " row " << row << " input " << i << ": "
                                                << actual[i] << " for " << wanted[i];
      }
      if (IsQuantized(weights->stored_format)) ExpectKept(name, *weights, row, wanted);
      if (HasFatalFailure()) return;
    }
  }
  using enum WeightFormat;
  const std::map<WeightFormat, int> expected = {
      {kF16, 1},   // groups of 8
      {kBf16, 3},  // scales that need f32, fp8 in groups of 32
      {kQ1Affine, 2}, {kQ2Affine, 5}, {kQ3Affine, 4}, {kQ4Affine, 14},
      {kQ5Affine, 2}, {kQ6Affine, 2}, {kQ8Affine, 9}, {kMxfp4, 1},
      {kNvfp4, 3},    {kMxfp8, 2},    {kFp8, 10}};
  EXPECT_EQ(formats, expected);
}

TEST(HfWeights, FloatsBesideScalesAreNoQuantizedMatrix) {
  const float number = 1;
  const TensorView view = {DType::kF32, {1, 1}, reinterpret_cast<const std::byte*>(&number)};
  const auto find = [&](std::string_view part) {
    return part == "weight" || part == "weight_scale" ? &view : nullptr;
  };
  EXPECT_FALSE(IsHfQuantized(find));
  EXPECT_FALSE(IsHfQuantized([](std::string_view) { return nullptr; }));
}

TEST(HfWeights, GroupsOfInputsThatDoNotExistAreRefused) {
  Module module("gptq/shuffled");
  std::vector<int32_t> groups(128, 0);
  module["g_idx"].data = reinterpret_cast<const std::byte*>(groups.data());
  EXPECT_TRUE(module.Read().ok());
  for (const int32_t wrong : {4, -1, 1 << 30}) {
    groups[77] = wrong;
    module.ExpectError(ErrorCode::kCorrupt, "of input 77");
  }
}

// Each part missing, of another type, with one more or less of an extent, of another rank, without
// numbers: all of them errors, but for those that are named.
TEST(HfWeights, PartsThatDoNotFitAreRefused) {
  // What can be missing, or is not looked at.
  const std::vector<std::string> optional = {"g_idx", "weight_g_idx", "weight_zero_point",
                                             "input_scale", "input_global_scale"};
  for (const char* name :
       {"awq/groups_of_32", "gptq/3_bits", "gptq/shuffled", "gptq/short_last_of_128",
        "compressed-tensors/3_bits_zeros", "compressed-tensors/channels",
        "compressed-tensors/bytes_zeros", "fp8/blocks", "modelopt/fp8_blocks", "modelopt/nvfp4",
        "compressed-tensors/nvfp4", "compressed-tensors/mxfp4", "compressed-tensors/mxfp8"}) {
    const Module whole(name);
    ASSERT_TRUE(whole.Read().ok()) << name;
    for (const std::string_view view : kHfParts) {
      const std::string part(view);
      const TensorView* const stored = PartsOf(name)(part);
      if (stored == nullptr || part.starts_with("input_")) continue;
      const auto expect_refused = [&](const std::string& how,
                                      const std::function<void(TensorView*)>& change) {
        Module module = whole;
        change(&module[part]);
        const auto read = module.Read();
        ASSERT_FALSE(read.ok()) << name << ": " << part << " " << how;
        EXPECT_FALSE(read.error().message.empty());
      };
      const DType other = stored->dtype == DType::kF64 ? DType::kU16 : DType::kF64;
      expect_refused("of another type", [other](TensorView* tensor) { tensor->dtype = other; });
      expect_refused("of 16 bits", [](TensorView* tensor) { tensor->dtype = DType::kU16; });
      expect_refused("of one rank more", [](TensorView* tensor) { tensor->shape.push_back(2); });
      expect_refused("empty", [](TensorView* tensor) { tensor->shape = {0}; });
      expect_refused("an empty matrix", [](TensorView* tensor) { tensor->shape = {0, 0}; });
      for (size_t i = 0; i < stored->shape.size(); ++i) {
        // One input less of some matrices is another matrix; sanitizers watch.
        Module module = whole;
        --module[part].shape[i];
        const auto read = module.Read();
        EXPECT_TRUE(!read.ok() || read->shape != whole.Read()->shape || stored->shape.size() == 1)
            << name << ": " << part << " less in extent " << i;
      }
      if (std::find(optional.begin(), optional.end(), part) != optional.end()) continue;
      Module without = whole;
      without.Erase(part);
      EXPECT_FALSE(without.Read().ok()) << name << " without " << part;
    }
  }
}

// Codes of 3, 5, 6 and 7 bits left over what does not hold a whole one before the newest versions
// of compressed-tensors. Those of 7 take as many words as those of 8 do.
std::vector<uint32_t> WithoutCodesThatCross(const TensorView& stream, int64_t codes, int bits,
                                            bool by_columns) {
  const int64_t lines = stream.shape[by_columns ? 1 : 0];
  const int64_t line_words = stream.shape[by_columns ? 0 : 1];
  const int64_t per_word = 32 / bits;
  const int64_t words = (codes + per_word - 1) / per_word;
  std::vector<uint32_t> packed(static_cast<size_t>(lines * words));
  const auto* const data = reinterpret_cast<const uint32_t*>(stream.data);
  for (int64_t line = 0; line < lines; ++line) {
    for (int64_t code = 0; code < codes; ++code) {
      uint32_t value = 0;
      for (int64_t bit = 0; bit < bits; ++bit) {
        const int64_t at = code * bits + bit;
        const int64_t word = by_columns ? at / 32 * lines + line : line * line_words + at / 32;
        value |= (data[word] >> (at % 32) & 1) << bit;
      }
      const int64_t word = code / per_word;
      packed[static_cast<size_t>(by_columns ? word * lines + line : line * words + word)] |=
          value << (code % per_word * bits);
    }
  }
  return packed;
}

TEST(HfWeights, CodesThatEachHaveTheirWordAreReadWhereConfigSaysTheirBits) {
  int modules = 0;
  for (const auto& [tensor, packed] : Golden().tensors()) {
    constexpr std::string_view kPart = ".weight_packed";
    if (!tensor.starts_with("compressed-tensors/") || !tensor.ends_with(kPart)) continue;
    const std::string name = tensor.substr(0, tensor.size() - kPart.size());
    const int bits = name[name.find('/') + 1] - '0';
    if (packed.dtype != DType::kI32 || (bits != 3 && bits < 5) || bits > 7) continue;
    ++modules;
    Module module(name);
    const auto wanted = module.Read();
    ASSERT_TRUE(wanted.ok()) << name;
    module.quantization().packed_bits = {bits};
    ASSERT_TRUE(module.Read().ok()) << name;
    std::vector<std::vector<uint32_t>> words;
    for (const char* part : {"weight_packed", "weight_zero_point"}) {
      const bool is_zeros = part == std::string("weight_zero_point");
      if (is_zeros && PartsOf(name)(part) == nullptr) continue;
      TensorView& view = module[part];
      words.push_back(WithoutCodesThatCross(view, wanted->shape[is_zeros ? 0 : 1], bits, is_zeros));
      view.shape[is_zeros ? 0 : 1] =
          static_cast<int64_t>(words.back().size()) / view.shape[is_zeros ? 1 : 0];
      view.data = reinterpret_cast<const std::byte*>(words.back().data());
    }
    const auto read = module.Read();
    ASSERT_TRUE(read.ok()) << name << ": " << read.error().message;
    EXPECT_EQ(read->stored_format, wanted->stored_format) << name;
    std::vector<float> row(static_cast<size_t>(wanted->shape[1])), same = row;
    for (int64_t i = 0; i < wanted->shape[0]; ++i) {
      wanted->read_row(i, row.data());
      read->read_row(i, same.data());
      ASSERT_EQ(row, same) << name << " row " << i;
    }
    if (bits == 7) {
      module.quantization().packed_bits = {7, 8};
      module.ExpectError(ErrorCode::kUnsupported, "7 or of 8 bits");
    }
    module.quantization().packed_bits = {4};
    module.ExpectError(ErrorCode::kCorrupt, "codes of 4 bits");
  }
  EXPECT_GE(modules, 4);
}

// Files of mixed bits: config.json has those of most modules.
TEST(HfWeights, ZerosTellBitsThatConfigDoesNot) {
  for (const char* name : {"gptq/2_bits", "gptq/3_bits", "gptq_v2/8_bits"}) {
    HfQuantization quantization = QuantizationOf(name);
    const auto wanted = HfWeights(PartsOf(name), &quantization);
    quantization.bits = 4;
    quantization.group_size = 77;
    const auto read = HfWeights(PartsOf(name), &quantization);
    ASSERT_TRUE(wanted.ok() && read.ok()) << name;
    EXPECT_EQ(read->shape, wanted->shape);
    EXPECT_EQ(read->stored_format, wanted->stored_format);
    EXPECT_EQ(read->affine, wanted->affine);
  }
}

TEST(HfWeights, ErrorsNameThePart) {
  Module awq("awq/groups_of_32");
  awq["scales"].shape = {5, 16};
  awq.ExpectError(ErrorCode::kCorrupt, "qzeros is i32");
  Module gptq("gptq/4_bits");
  gptq["qweight"].dtype = DType::kI64;
  gptq.ExpectError(ErrorCode::kCorrupt, "qweight is i64");
  Module packed("compressed-tensors/4_bits");
  packed.Erase("weight_shape");
  packed.ExpectError(ErrorCode::kCorrupt, "weight_shape");
  Module fp8("fp8/blocks");
  fp8["weight_scale_inv"].shape = {3, 2};
  fp8.ExpectError(ErrorCode::kCorrupt, "weight_scale_inv is f32 [3, 2]");
  fp8["weight"].dtype = DType::kF8E5m2;
  fp8.ExpectError(ErrorCode::kUnsupported, "f8_e5m2");
  Module words("compressed-tensors/mxfp4");
  words["weight_scale"].dtype = DType::kBf16;
  words.ExpectError(ErrorCode::kCorrupt, "weight_scale is bf16");
  words["weight_scale"].dtype = DType::kU8;
  words["weight_packed"].shape = {8, 62};
  words.ExpectError(ErrorCode::kCorrupt, "weight_packed is u8 [8, 62]");
  Module few("compressed-tensors/4_bits");
  const int64_t small[] = {24, 24};
  few["weight_shape"].data = reinterpret_cast<const std::byte*>(small);
  few["weight_packed"].shape = {24, 3};
  few.ExpectError(ErrorCode::kCorrupt, "at least 32 codes");
  Module unordered("compressed-tensors/fp8_groups");
  std::vector<int32_t> groups(128, 1);
  unordered["weight_g_idx"] = {DType::kI32, {128}, reinterpret_cast<std::byte*>(groups.data())};
  unordered.ExpectError(ErrorCode::kUnsupported, "weight_g_idx");
  for (const float scale : {0.0f, -1.0f, INFINITY, 1e-45f, std::nanf("")}) {
    Module module("compressed-tensors/nvfp4");
    module["weight_global_scale"].data = reinterpret_cast<const std::byte*>(&scale);
    module.ExpectError(ErrorCode::kCorrupt, "weight_global_scale is");
  }
  Module other("awq/bf16");
  other.Erase("qweight");
  other["weight_packed"] = other["scales"];
  other.ExpectError(ErrorCode::kUnsupported, "has no qweight");
  Module smoothed("modelopt/nvfp4");
  const TensorView scale = smoothed["weight_scale_2"];
  smoothed["pre_quant_scale"] = scale;
  smoothed.ExpectError(ErrorCode::kUnsupported, "pre_quant_scale");
}

}  // namespace
}  // namespace kvasir
