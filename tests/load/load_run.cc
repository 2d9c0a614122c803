#include "tests/load/load_run.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

namespace kvasir {
namespace {

constexpr size_t kKeptProblems = 20;
constexpr int kSmallBuffer = 4096;  // bytes that a client takes without reading

struct Outcome {
  LoadEnd end = LoadEnd::kFailed;
  std::string problem;
};

}  // namespace

const char* NameOf(LoadEnd end) {
  constexpr std::array<const char*, static_cast<size_t>(LoadEnd::kCount)> kNames = {
      "answered", "left", "rejected", "busy", "failed"};
  return kNames[static_cast<size_t>(end)];
}

// One request as one kind of client makes it.
class LoadRun::Client {
 public:
  Client(LoadRun* run, const Slice& slice, int64_t number)
      : run_(*run), port_(slice.port), number_(number) {
    std::seed_seq seed{slice.seed, static_cast<uint64_t>(number)};
    random_.seed(seed);
  }

  Outcome Decent() {
    const uint64_t kind = Below(100);
    if (kind < 45) return Whole(AnyReference());
    if (kind < 75) return Stream(AnyStream());
    if (kind < 85) return Fresh();
    if (kind < 90) return Pipelined();
    if (kind < 95) return HalfClosed();
    if (kind < 99) return InPieces();
    return Slow();
  }
  Outcome Any() {
    const uint64_t kind = Below(100);
    if (kind < 60) return Decent();
    if (kind < 70) return Bad();
    if (kind < 80) return LeaveWhileReading();
    if (kind < 90) return LeaveAtOnce();
    return SendHalf();
  }

 private:
  uint64_t Below(uint64_t limit) { return random_() % limit; }
  size_t AnyReference() { return Below(run_.requests_.size() - 1); }
  size_t AnyStream() {
    size_t reference = AnyReference();
    while (!run_.requests_[reference].can_stream()) reference = AnyReference();
    return reference;
  }
  std::string Bytes(size_t reference, bool is_stream) const {
    const LoadRequest& request = run_.requests_[reference];
    return HttpBytes(request.path, BodyOf(request, is_stream));
  }

  // The answer must be that of the request alone.
  Outcome Compare(size_t reference, const WireResponse& response) {
    const auto answer = ReadAnswer(run_.requests_[reference], response);
    if (!answer.ok()) return Failure(answer.error());
    if (answer->bits != run_.bits_[reference]) {
      return {LoadEnd::kFailed,
              "another answer than alone to reference " + std::to_string(reference) +
                  "\nalone: " + run_.bits_[reference] + "\nnow:   " + answer->bits};
    }
    run_.CountAnswer(*answer);
    return {LoadEnd::kAnswered, ""};
  }
  static Outcome Failure(const Error& error) {
    const bool is_busy = error.code == ErrorCode::kResourceExhausted;
    return {is_busy ? LoadEnd::kBusy : LoadEnd::kFailed, error.message};
  }

  Outcome Whole(size_t reference) {
    TestClient client(port_);
    client.Send(Bytes(reference, false));
    return Compare(reference, client.Read());
  }
  Outcome Stream(size_t reference) {
    TestClient client(port_);
    client.Send(Bytes(reference, true));
    return Compare(reference, client.Read());
  }
  // Whole and then streamed, from what the first has left in the cache.
  Outcome Fresh() {
    const LoadRequest request = FreshRequest(static_cast<uint64_t>(number_));
    std::string first;
    for (const bool is_stream : {false, true}) {
      TestClient client(port_);
      client.Send(HttpBytes(request.path, BodyOf(request, is_stream)));
      const auto answer = ReadAnswer(request, client.Read());
      if (!answer.ok()) return Failure(answer.error());
      run_.CountAnswer(*answer);
      if (!is_stream) {
        first = answer->bits;
      } else if (answer->bits != first) {
        return {LoadEnd::kFailed, "two answers to one question:\n" + first + answer->bits};
      }
    }
    return {LoadEnd::kAnswered, ""};
  }
  // Two requests before the first answer.
  Outcome Pipelined() {
    const size_t first = AnyReference(), second = AnyStream();
    TestClient client(port_);
    client.Send(Bytes(first, false) + Bytes(second, true));
    const Outcome outcome = Compare(first, client.Read());
    return outcome.end == LoadEnd::kAnswered ? Compare(second, client.Read()) : outcome;
  }
  // A client that has said all it will is no client that has gone.
  Outcome HalfClosed() {
    const size_t reference = AnyStream();
    TestClient client(port_);
    client.Send(Bytes(reference, Below(2) == 0));
    client.HalfClose();
    return Compare(reference, client.Read());
  }
  Outcome InPieces() {
    const size_t reference = AnyReference();
    TestClient client(port_);
    const std::string bytes = Bytes(reference, false);
    const size_t cut = 1 + Below(bytes.size() - 1);
    client.Send(std::string_view(bytes).substr(0, cut));
    // Whatever the server does meanwhile, the rest comes after it.
    TestClient other(port_);
    other.SendRequest("GET", "/health");
    if (other.Read().status != 200) return {LoadEnd::kFailed, "the server is not well"};
    client.Send(std::string_view(bytes).substr(cut));
    return Compare(reference, client.Read());
  }
  // Reads nothing of its answer until it has had another.
  Outcome Slow() {
    const size_t reference = run_.requests_.size() - 1;
    TestClient client(port_, kSmallBuffer);
    client.Send(Bytes(reference, true));
    const Outcome other = Whole(AnyReference());
    if (other.end != LoadEnd::kAnswered) return other;
    return Compare(reference, client.Read());
  }

  Outcome LeaveWhileReading() {
    TestClient client(port_);
    client.Send(Bytes(AnyStream(), true));
    const WireResponse head = client.ReadHead();
    if (head.status == 503) return {LoadEnd::kBusy, ""};
    if (head.status != 200) return {LoadEnd::kFailed, "a stream without a beginning"};
    std::string event;
    for (uint64_t i = Below(4); i > 0 && client.ReadEvent(&event); --i) {
    }
    return Leave(client);
  }
  Outcome LeaveAtOnce() {
    TestClient client(port_);
    client.Send(Bytes(AnyStream(), Below(2) == 0));
    return Leave(client);
  }
  Outcome SendHalf() {
    TestClient client(port_);
    const std::string bytes = Bytes(AnyReference(), false);
    client.Send(std::string_view(bytes).substr(0, Below(bytes.size())));
    return Leave(client);
  }
  Outcome Leave(TestClient& client) {
    if (Below(2) == 0) {
      client.Reset();
    } else {
      client.Close();
    }
    return {LoadEnd::kLeft, ""};
  }
  Outcome Bad() {
    const BadRequest& bad = run_.bad_[Below(run_.bad_.size())];
    TestClient client(port_);
    client.Send(bad.bytes);
    const WireResponse response = client.Read();
    if (response.status == bad.status) return {LoadEnd::kRejected, ""};
    return {LoadEnd::kFailed, "status " + std::to_string(response.status) + ", not " +
                                  std::to_string(bad.status) + ", to: " + bad.bytes.substr(0, 300)};
  }

  LoadRun& run_;
  const uint16_t port_;
  const int64_t number_;
  std::mt19937_64 random_;
};

Status LoadRun::LearnAnswers(uint16_t port) {
  for (const LoadRequest& request : requests_) {
    TestClient client(port);
    client.Send(HttpBytes(request.path, BodyOf(request, false)));
    KVASIR_TRY(LoadAnswer answer, ReadAnswer(request, client.Read()));
    bits_.push_back(std::move(answer.bits));
  }
  return {};
}

void LoadRun::Run(const Slice& slice) {
  std::atomic<int64_t> next = slice.first;
  const auto work = [&] {
    for (int64_t number; (number = next.fetch_add(1)) < slice.first + slice.count;) {
      Client client(this, slice, number);
      const Outcome outcome = slice.is_decent ? client.Decent() : client.Any();
      Count(number, outcome.end, outcome.problem);
    }
  };
  std::vector<std::thread> clients;
  for (int i = 0; i < slice.clients; ++i) clients.emplace_back(work);
  for (std::thread& client : clients) client.join();
}

void LoadRun::Count(int64_t number, LoadEnd end, const std::string& problem) {
  const std::lock_guard lock(mutex_);
  ++totals_.ends[static_cast<size_t>(end)];
  if (end != LoadEnd::kFailed || totals_.problems.size() >= kKeptProblems) return;
  totals_.problems.push_back("request " + std::to_string(number) + ": " + problem);
}

void LoadRun::CountAnswer(const LoadAnswer& answer) {
  const std::lock_guard lock(mutex_);
  ++totals_.answers;
  totals_.prompt_tokens += answer.prompt_tokens;
  totals_.generated_tokens += answer.generated_tokens;
}

}  // namespace kvasir
