// What tests of configs share.
#ifndef KVASIR_FORMATS_CONFIG_TEST_UTIL_H_
#define KVASIR_FORMATS_CONFIG_TEST_UTIL_H_

#include <gtest/gtest.h>

#include <string>

#include "kvasir/formats/model_config.h"

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

}  // namespace kvasir

#endif  // KVASIR_FORMATS_CONFIG_TEST_UTIL_H_
