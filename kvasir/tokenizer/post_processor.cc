#include "kvasir/tokenizer/post_processor.h"

#include <string>
#include <string_view>

#include "kvasir/tokenizer/component_json.h"

namespace kvasir {
namespace {

Error Corrupt(std::string message) { return {ErrorCode::kCorrupt, std::move(message)}; }

Result<Token> ReadId(const Json& json, int64_t id_end) {
  if (!json.is_int()) return Corrupt("must be an integer id, not " + std::string(json.type_name()));
  if (json.as_int() < 0 || json.as_int() >= id_end) {
    return Corrupt("id " + std::to_string(json.as_int()) + " is outside the vocabulary of " +
                   std::to_string(id_end));
  }
  return static_cast<Token>(json.as_int());
}

// The ids of special_tokens[name].
Result<std::vector<Token>> ReadSpecialToken(const Json& component, const std::string& name,
                                            int64_t id_end) {
  const Json* all = component.Find("special_tokens");
  const Json* entry = all == nullptr ? nullptr : all->Find(name);
  if (entry == nullptr) return Corrupt("'" + name + "' is not in field 'special_tokens'");
  std::vector<Token> ids;
  const Status status = ForEachComponent(*entry, "ids", [&](const Json& json) -> Status {
    KVASIR_TRY(const Token id, ReadId(json, id_end));
    ids.push_back(id);
    return {};
  });
  if (!status.ok()) return WithContext(status.error(), "special_tokens['" + name + "']");
  return ids;
}

Result<PostProcessor> ReadTemplate(const Json& component, int64_t id_end) {
  PostProcessor result;
  bool after_text = false;
  KVASIR_TRY_OK(ForEachComponent(component, "single", [&](const Json& item) -> Status {
    if (const Json* text = item.Find("Sequence"); text != nullptr) {
      KVASIR_TRY(const std::string id, text->GetString("id"));
      if (id != "A" || after_text) {
        return Corrupt("a template for one text must have the Sequence A once");
      }
      after_text = true;
      return {};
    }
    const Json* special = item.Find("SpecialToken");
    if (special == nullptr) return Corrupt("must be an object 'Sequence' or 'SpecialToken'");
    KVASIR_TRY(const std::string name, special->GetString("id"));
    KVASIR_TRY(const std::vector<Token> ids, ReadSpecialToken(component, name, id_end));
    std::vector<Token>& side = after_text ? result.suffix : result.prefix;
    side.insert(side.end(), ids.begin(), ids.end());
    return {};
  }));
  if (!after_text) return Corrupt("field 'single' must have the Sequence A once");
  return result;
}

// The second element of ["</s>", 2].
Result<Token> ReadPair(const Json& component, const std::string& key, int64_t id_end) {
  const Json* pair = component.Find(key);
  if (pair == nullptr || !pair->is_array() || pair->as_array().size() != 2) {
    return Corrupt("field '" + key + "' must be an array of a token and its id");
  }
  Result<Token> id = ReadId(pair->as_array()[1], id_end);
  if (!id.ok()) return WithContext(id.error(), "field '" + key + "'");
  return id;
}

Result<PostProcessor> ReadClsSep(const Json& component, int64_t id_end) {
  KVASIR_TRY(const Token cls, ReadPair(component, "cls", id_end));
  KVASIR_TRY(const Token sep, ReadPair(component, "sep", id_end));
  return PostProcessor{{cls}, {sep}};
}

Result<PostProcessor> ReadSequence(const Json& component, int64_t id_end) {
  PostProcessor result;
  KVASIR_TRY_OK(ForEachComponent(component, "processors", [&](const Json& json) -> Status {
    KVASIR_TRY(const PostProcessor part, PostProcessor::FromJson(json, id_end));
    result.prefix.insert(result.prefix.begin(), part.prefix.begin(), part.prefix.end());
    result.suffix.insert(result.suffix.end(), part.suffix.begin(), part.suffix.end());
    return {};
  }));
  return result;
}

}  // namespace

Result<PostProcessor> PostProcessor::FromJson(const Json& json, int64_t id_end) {
  if (json.is_null()) return PostProcessor();
  KVASIR_TRY(const std::string type, ComponentType(json));
  if (type == "Sequence") return ReadSequence(json, id_end);
  if (type == "TemplateProcessing") return ReadTemplate(json, id_end);
  if (type == "RobertaProcessing" || type == "BertProcessing") return ReadClsSep(json, id_end);
  // ByteLevel only trims offsets, which this tokenizer does not report.
  if (type == "ByteLevel") return PostProcessor();
  return UnsupportedType(
      type, "Sequence, TemplateProcessing, ByteLevel, RobertaProcessing, BertProcessing");
}

}  // namespace kvasir
