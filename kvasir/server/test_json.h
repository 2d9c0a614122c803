// What tests do with JSON and event streams.
// Deliberately forgiving: what is missing is null, so that a comparison fails and not the program.
#ifndef KVASIR_SERVER_TEST_JSON_H_
#define KVASIR_SERVER_TEST_JSON_H_

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kvasir/base/json.h"

namespace kvasir {

inline Json Parsed(const std::string& text) {
  auto json = Json::Parse(text);
  EXPECT_TRUE(json.ok()) << text;
  return json.ok() ? *std::move(json) : Json();
}

// The value at a path of keys and indices, e.g. At(body, {"choices", "0", "delta"}); null if none.
inline Json At(const Json& json, const std::vector<std::string>& path) {
  const Json* value = &json;
  for (const std::string& key : path) {
    if (value->is_array()) {
      const size_t index = std::stoul(key);
      if (index >= value->as_array().size()) return {};
      value = &value->as_array()[index];
    } else {
      value = value->Find(key);
      if (value == nullptr) return {};
    }
  }
  return *value;
}

// The blocks of an event stream, without the blank lines that end them.
inline std::vector<std::string> Blocks(const std::string& body) {
  std::vector<std::string> blocks;
  size_t at = 0;
  while (at < body.size()) {
    const size_t end = body.find("\n\n", at);
    if (end == std::string::npos) {
      ADD_FAILURE() << "half an event: " << body.substr(at);
      break;
    }
    blocks.push_back(body.substr(at, end - at));
    at = end + 2;
  }
  return blocks;
}

}  // namespace kvasir

#endif  // KVASIR_SERVER_TEST_JSON_H_
