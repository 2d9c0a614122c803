// What the load test asks: requests with an answer that must never change, and requests that are
// wrong. Deliberately a fixed list: the same in every run, so that a finding can be repeated.
#ifndef KVASIR_TESTS_LOAD_LOAD_REQUESTS_H_
#define KVASIR_TESTS_LOAD_LOAD_REQUESTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kvasir/base/json.h"

namespace kvasir {

struct LoadRequest {
  std::string path;
  Json body;  // without `stream`
  // The APIs of Anthropic and of OpenAI's responses stream events of other kinds.
  bool can_stream() const { return path.ends_with("completions"); }
};

// Over four shared prefixes of up to 1,200 tokens: chats and texts, greedy and with seeds, with
// scores, stop strings and several answers. Every one determines its answer.
std::vector<LoadRequest> ReferenceRequests();

// Its answer is larger than what the server and the sockets hold for a client that does not read.
LoadRequest LongRequest();

// A chat that nobody has had before, nor will.
LoadRequest FreshRequest(uint64_t number);

// Bytes of a whole HTTP request and the status that they deserve.
struct BadRequest {
  std::string bytes;
  int status;
};
std::vector<BadRequest> BadRequests();

// As a client sends it, keeping the connection.
std::string HttpBytes(const std::string& path, const std::string& body);

}  // namespace kvasir

#endif  // KVASIR_TESTS_LOAD_LOAD_REQUESTS_H_
