#include "kvasir/server/test_model.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <functional>

#include "kvasir/base/file.h"
#include "tests/support/scratch_model.h"

namespace kvasir {
namespace {

const std::string kTemplate = R"({%- for message in messages -%}
{%- if message.content == "refuse" %}{{ raise_exception("this I do not say") }}{% endif -%}
<{{ message.role }}>{{ message.content }}
{% endfor %}{% if note %}({{ note }}){% endif %}<assistant>)";

}  // namespace

Status WriteTestModel(const std::string& folder, const std::string& more_template) {
  const std::string source = std::string(KVASIR_SOURCE_DIR) + "/testdata/models/public_llama_f32/";
  for (const char* name : {"config.json", "model.safetensors"}) {
    KVASIR_TRY(const std::string contents, ReadFile(source + name));
    KVASIR_TRY_OK(WriteFileAtomic(folder + "/" + name, contents));
  }
  KVASIR_TRY_OK(WriteFileAtomic(folder + "/tokenizer.json", BytesTokenizer()));
  KVASIR_TRY_OK(WriteFileAtomic(folder + "/tokenizer_config.json", "{}"));
  return WriteFileAtomic(folder + "/chat_template.jinja", kTemplate + more_template);
}

namespace {

// `write` fills the folder.
Result<std::unique_ptr<ModelBundle>> LoadFromScratch(
    size_t kv_budget_bytes, const std::function<Status(const std::string& folder)>& write) {
  std::string folder = testing::TempDir() + "kvasir-server-XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return {ErrorCode::kIo, "cannot make " + folder};
  const Status written = write(folder);
  BundleOptions options;
  options.backend.threads = 1;
  options.kv_budget_bytes = kv_budget_bytes;
  auto bundle = written.ok() ? ModelBundle::Load(folder, options)
                             : Result<std::unique_ptr<ModelBundle>>(written.error());
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return bundle;
}

}  // namespace

Result<std::unique_ptr<ModelBundle>> LoadTestModel(size_t kv_budget_bytes,
                                                   const std::string& more_template) {
  return LoadFromScratch(kv_budget_bytes, [&](const std::string& folder) {
    return WriteTestModel(folder, more_template);
  });
}

Result<std::unique_ptr<ModelBundle>> LoadBaseTestModel() {
  return LoadFromScratch(64 << 20, [](const std::string& folder) -> Status {
    KVASIR_TRY_OK(WriteTestModel(folder));
    std::filesystem::remove(folder + "/chat_template.jinja");
    return {};
  });
}

}  // namespace kvasir
