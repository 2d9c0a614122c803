#include "kvasir/convert/gguf_pairs_of.h"

#include "kvasir/convert/gguf_shape_pairs.h"
#include "kvasir/convert/gguf_tokenizer_pairs.h"

namespace kvasir {

Result<GgufPairs> GgufPairsOf(const ModelSource& source, const ModelConfig& config) {
  GgufPairs pairs;
  const Status shape = AddGgufShape(config, &pairs);
  if (!shape.ok()) return WithContext(shape.error(), source.path() + "/config.json");
  const Status tokenizer = AddGgufTokenizer(source, config, &pairs);
  if (!tokenizer.ok()) return WithContext(tokenizer.error(), source.path() + "/tokenizer.json");
  return pairs;
}

}  // namespace kvasir
