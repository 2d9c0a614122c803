// LoadRun: many clients of one server, most of them decent, and what became of each request.
// Deliberately blocking clients on threads: each is as simple as a client can be, so that what is
// wrong is the server's fault.
#ifndef KVASIR_TESTS_LOAD_LOAD_RUN_H_
#define KVASIR_TESTS_LOAD_LOAD_RUN_H_

#include <array>
#include <cstdint>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "kvasir/base/result.h"
#include "tests/load/load_answer.h"
#include "tests/load/load_requests.h"

namespace kvasir {

// The one end that each request comes to.
enum class LoadEnd {
  kAnswered,  // whole, and the bits of the same request alone
  kLeft,      // the client went away
  kRejected,  // it was wrong, and the server said so
  kBusy,      // 503
  kFailed,    // the server's fault
  kCount
};
const char* NameOf(LoadEnd end);

struct LoadTotals {
  std::array<int64_t, static_cast<size_t>(LoadEnd::kCount)> ends = {};
  int64_t answers = 0;                // whole ones: some clients want two
  int64_t prompt_tokens = 0;          // of these answers
  int64_t generated_tokens = 0;       // likewise
  std::vector<std::string> problems;  // the first few

  int64_t of(LoadEnd end) const { return ends[static_cast<size_t>(end)]; }
};

class LoadRun {
 public:
  LoadRun() : requests_(ReferenceRequests()), bad_(BadRequests()) {
    requests_.push_back(LongRequest());
  }

  // Asks each request alone, one after the other. ERRORS: as ReadAnswer.
  Status LearnAnswers(uint16_t port);

  // Requests number `first` to `first + count` by `clients` at once. What a request is depends on
  // its number and the seed alone. Decent clients read every answer to its end.
  // REQUIRES: LearnAnswers.
  struct Slice {
    uint16_t port = 0;
    uint64_t seed = 1;
    int64_t first = 0;
    int64_t count = 0;
    int clients = 1;
    bool is_decent = false;
  };
  void Run(const Slice& slice);

  const LoadTotals& totals() const { return totals_; }

 private:
  class Client;

  void Count(int64_t number, LoadEnd end, const std::string& problem);
  void CountAnswer(const LoadAnswer& answer);

  std::vector<LoadRequest> requests_;  // the last is the long one
  std::vector<BadRequest> bad_;
  std::vector<std::string> bits_;  // of the answers to requests_

  std::mutex mutex_;
  LoadTotals totals_;
};

}  // namespace kvasir

#endif  // KVASIR_TESTS_LOAD_LOAD_RUN_H_
