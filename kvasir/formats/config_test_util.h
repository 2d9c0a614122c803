// What tests of configs share.
#ifndef KVASIR_FORMATS_CONFIG_TEST_UTIL_H_
#define KVASIR_FORMATS_CONFIG_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "kvasir/formats/gguf_config.h"
#include "kvasir/formats/gguf_test_bytes.h"
#include "kvasir/formats/model_config.h"
#include "kvasir/formats/test_files.h"

namespace kvasir {

// A letter for each layer: full, sliding, recurrent.
inline std::string Kinds(const ModelConfig& model) {
  std::string text;
  for (const LayerKind kind : model.layer_kinds) text += "FSR"[static_cast<size_t>(kind)];
  return text;
}

inline void ExpectConfigError(const Result<ModelConfig>& model, ErrorCode code,
                              const std::string& part) {
  ASSERT_FALSE(model.ok());
  EXPECT_EQ(model.error().code, code) << model.error().message;
  EXPECT_NE(model.error().message.find(part), std::string::npos) << model.error().message;
}

// A config of the given fields, which are the inside of an object.
inline Result<ModelConfig> ParseFields(const std::string& fields) {
  return ModelConfig::Parse(*Json::Parse("{" + fields + "}"));
}

inline ModelConfig ParsedFields(const std::string& fields) {
  auto model = ParseFields(fields);
  EXPECT_TRUE(model.ok()) << model.error().message;
  return model.ok() ? *std::move(model) : ModelConfig();
}

inline void ExpectFieldsError(const std::string& fields, ErrorCode code, const std::string& part) {
  SCOPED_TRACE(fields);
  ExpectConfigError(ParseFields(fields), code, part);
}

// The least that a file of two layers says, whatever its architecture.
inline GgufTestFile TinyGguf(const std::string& architecture) {
  GgufTestFile file;
  const std::string prefix = architecture + ".";
  file.Text("general.architecture", architecture).U32(prefix + "block_count", 2);
  file.U32(prefix + "embedding_length", 32).U32(prefix + "context_length", 64);
  file.U32(prefix + "attention.head_count", 2).U32(prefix + "feed_forward_length", 48);
  file.F32(prefix + "attention.layer_norm_rms_epsilon", 1e-5f);
  file.Tensor({"token_embd.weight", {32, 8}, 0, 0});
  return file;
}

inline Result<ModelConfig> ReadGguf(const GgufTestFile& content) {
  const ScratchFolder folder;
  KVASIR_TRY(const GgufFile file, GgufFile::Open(folder.Write("m.gguf", content.Bytes(1 << 12))));
  return GgufModelConfig(file);
}

}  // namespace kvasir

#endif  // KVASIR_FORMATS_CONFIG_TEST_UTIL_H_
