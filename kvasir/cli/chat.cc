// kvasir chat: a conversation in the terminal. Each turn evaluates only what is new.
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <optional>

#include "kvasir/cli/commands.h"
#include "kvasir/cli/draft_flags.h"
#include "kvasir/cli/model_flags.h"
#include "kvasir/cli/output.h"
#include "kvasir/engine/cached_sequence_file.h"

namespace kvasir {
namespace {

constexpr const char* kHelp =
    "/stats    tokens, speed and cache of the last answer\n"
    "/undo     take the last turn back; its rows are dropped, nothing is evaluated again\n"
    "/fork     go on in a copy of this conversation (all blocks are shared)\n"
    "/switch N go to branch N\n"
    "/save F   write this conversation and its cache to the file F\n"
    "/load F   go on with the conversation of such a file, in a new branch\n"
    "/help     this text\n"
    "/quit     leave (also Ctrl-D); Ctrl-C stops an answer\n";

// One line of standard input without its newline; nothing at the end of input.
std::optional<std::string> ReadLine() {
  char* line = nullptr;
  size_t capacity = 0;
  for (;;) {
    ClearInterrupt();  // one that came during a command
    errno = 0;
    const ssize_t length = getline(&line, &capacity, stdin);
    if (length >= 0) {
      std::string text(line, static_cast<size_t>(length));
      std::free(line);
      while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
      return text;
    }
    if (errno == EINTR) {
      std::clearerr(stdin);
      std::fprintf(stderr, "\n(Ctrl-D or /quit leaves)\n> ");
      continue;
    }
    std::free(line);
    return std::nullopt;
  }
}

// One conversation: its messages, its cache, and where each turn began.
struct Branch {
  Json::Array messages;
  CachedSequence sequence;
  std::vector<Position> turn_starts;

  Branch Fork() const { return {messages, sequence.Fork(), turn_starts}; }
};

struct Conversation {
  Json::Array messages;
  std::vector<Position> turn_starts;
};

// What /save wrote beside the cache. ERRORS: kCorrupt, naming the path and the member.
Result<Conversation> ReadConversation(const std::string& path, const LoadedCachedSequence& loaded) {
  Conversation conversation;
  const auto list = [&](const std::string& key) -> Result<Json::Array> {
    const auto found = loaded.metadata.find(key);
    auto json = Json::Parse(found == loaded.metadata.end() ? "" : found->second);
    if (json.ok() && json->is_array()) return json->as_array();
    return {ErrorCode::kCorrupt,
            path + ": its metadata has no list '" + key + "'; /load reads what /save wrote"};
  };
  KVASIR_TRY(conversation.messages, list("messages"));
  for (const Json& message : conversation.messages) {
    if (!message.is_object() || !message.GetString("role").ok() ||
        !message.GetString("content").ok()) {
      return {ErrorCode::kCorrupt, path + ": a message has no role or no content"};
    }
  }
  KVASIR_TRY(const Json::Array starts, list("turn_starts"));
  for (const Json& start : starts) {
    if (!start.is_int() || start.as_int() < 0 || start.as_int() > loaded.sequence.position()) {
      return {ErrorCode::kCorrupt, path + ": a turn begins outside the conversation"};
    }
    conversation.turn_starts.push_back(start.as_int());
  }
  return conversation;
}

class ChatCommand final : public Command {
 public:
  std::string name() const override { return "chat"; }
  std::string help() const override { return "talk to a model in the terminal"; }

  void Declare(Flags& flags) override {
    model_.Declare(flags);
    sampling_.Declare(flags);
    draft_.Declare(flags);
    flags.Add("--system", &system_, "system message");
    flags.Add("-n,--max-tokens", &max_tokens_, "new tokens per answer at most");
  }

  Status Run() override {
    if (max_tokens_ < 1) {
      return {ErrorCode::kInvalidArgument, "--max-tokens must be 1 or more"};
    }
    KVASIR_TRY_OK(draft_.Check(model_));
    KVASIR_TRY(bundle_, model_.Load());
    KVASIR_TRY_OK(bundle_->CheckChats());
    KVASIR_TRY(drafts_, draft_.Load(model_, *bundle_));
    generator_.emplace(bundle_.get());
    generator_->UseDrafter(drafts_->NewDrafter(nullptr), draft_.max_drafts);
    KVASIR_TRY(CachedSequence sequence, bundle_->NewSequence());
    branches_.push_back({{}, std::move(sequence), {}});
    if (!system_.value_or("").empty()) AddMessage("system", *system_);
    InstallInterruptHandler();
    std::fprintf(stderr, "/help lists commands\n");
    for (;;) {
      std::fprintf(stderr, "> ");
      const std::optional<std::string> line = ReadLine();
      if (!line || *line == "/quit") break;
      if (line->empty()) continue;
      Status status = line->front() == '/' ? RunSlash(*line) : Answer(*line);
      if (!status.ok()) {
        if (status.error().code == ErrorCode::kIo) return status;
        std::fprintf(stderr, "%s\n", status.error().message.c_str());
      }
    }
    return Print("\n");
  }

 private:
  Branch& branch() { return branches_[current_]; }

  void AddMessage(const char* role, std::string content) {
    branch().messages.push_back(Json::Object{{"role", role}, {"content", std::move(content)}});
  }

  Status RunSlash(const std::string& line) {
    if (line == "/help") {
      std::fprintf(stderr, "%s", kHelp);
    } else if (line == "/stats") {
      ShowStats();
    } else if (line == "/undo") {
      return Undo();
    } else if (line == "/fork") {
      branches_.push_back(branch().Fork());
      current_ = branches_.size() - 1;
      std::fprintf(stderr, "branch %zu of %zu, %s of cache shared\n", current_, branches_.size(),
                   FormatBytes(branch().sequence.sequence().nbytes()).c_str());
    } else if (line.starts_with("/switch ")) {
      return Switch(line.substr(8));
    } else if (line.starts_with("/save ") && line.size() > 6) {
      return Save(line.substr(6));
    } else if (line.starts_with("/load ") && line.size() > 6) {
      return Load(line.substr(6));
    } else {
      return {ErrorCode::kInvalidArgument, "unknown command " + line + "; /help lists them"};
    }
    return {};
  }

  void ShowStats() {
    const KvPoolStats pool = bundle_->pool().Stats();
    std::fprintf(stderr,
                 "%s\nposition %lld of %lld | branch %zu of %zu | pool %s used, %s reserved"
                 " of %s\n",
                 StatsLine(stats_).c_str(), static_cast<long long>(branch().sequence.position()),
                 static_cast<long long>(bundle_->model().context_tokens()), current_,
                 branches_.size(), FormatBytes(pool.used_bytes).c_str(),
                 FormatBytes(pool.reserved_bytes).c_str(), FormatBytes(pool.budget_bytes).c_str());
  }

  Status Undo() {
    Branch& b = branch();
    if (b.turn_starts.empty()) return {ErrorCode::kFailedPrecondition, "there is no turn to undo"};
    const Position before = b.sequence.position();
    const Position after = b.sequence.RewindTo(b.turn_starts.back());
    b.turn_starts.pop_back();
    while (!b.messages.empty() && *b.messages.back().GetString("role") != "user") {
      b.messages.pop_back();
    }
    if (!b.messages.empty()) b.messages.pop_back();
    std::fprintf(stderr, "back from %lld to %lld tokens\n", static_cast<long long>(before),
                 static_cast<long long>(after));
    return {};
  }

  Status Switch(const std::string& number) {
    char* end = nullptr;
    const unsigned long wanted = std::strtoul(number.c_str(), &end, 10);
    if (*end != '\0' || number.empty() || wanted >= branches_.size()) {
      return {ErrorCode::kInvalidArgument,
              "branches are numbered 0 to " + std::to_string(branches_.size() - 1)};
    }
    current_ = wanted;
    std::fprintf(stderr, "branch %zu, %lld tokens\n", current_,
                 static_cast<long long>(branch().sequence.position()));
    return {};
  }

  Status Save(const std::string& path) {
    const Branch& b = branch();
    CacheMetadata metadata = {
        {"messages", Json(b.messages).Dump()},
        {"turn_starts", Json(Json::Array(b.turn_starts.begin(), b.turn_starts.end())).Dump()}};
    if (const Status s = SaveCachedSequence(b.sequence, *bundle_, path, metadata); !s.ok()) {
      // Not kIo, which ends the program: the conversation goes on.
      return {ErrorCode::kFailedPrecondition, s.error().message};
    }
    std::fprintf(stderr, "%lld tokens saved\n", static_cast<long long>(b.sequence.position()));
    return {};
  }

  Status Load(const std::string& path) {
    auto loaded = LoadCachedSequence(*bundle_, path);
    if (!loaded.ok()) return {ErrorCode::kFailedPrecondition, loaded.error().message};
    KVASIR_TRY(const Conversation conversation, ReadConversation(path, *loaded));
    branches_.push_back(
        {conversation.messages, std::move(loaded->sequence), conversation.turn_starts});
    current_ = branches_.size() - 1;
    std::fprintf(stderr, "branch %zu, %lld tokens\n", current_,
                 static_cast<long long>(branch().sequence.position()));
    return {};
  }

  // A turn that fails leaves the conversation as it was.
  Status Answer(const std::string& text) {
    ClearInterrupt();
    AddMessage("user", text);
    auto result = Generate();
    if (!result.ok()) {
      branch().messages.pop_back();
      return result.error();
    }
    AddMessage("assistant", result->text);
    stats_ = result->stats;
    return Print(result->finish == FinishReason::kCancelled ? " [stopped]\n" : "\n");
  }

  Result<GenerationResult> Generate() {
    GenerationRequest request;
    KVASIR_TRY(request.prompt, bundle_->ChatTokens(branch().messages));
    request.max_tokens = max_tokens_;
    request.sampling = sampling_.Resolve(bundle_->config().generation);
    Status printed;
    GenerationCallbacks callbacks;
    callbacks.on_prefill = ShowPrefillProgress;
    callbacks.is_cancelled = [&] { return Interrupted() || !printed.ok(); };
    callbacks.on_text = [&](std::string_view piece) {
      if (printed.ok()) printed = Print(piece);
    };
    const Position start = branch().sequence.position();
    auto result = generator_->Generate(request, branch().sequence, callbacks);
    ClearInterrupt();
    KVASIR_TRY_OK(printed);
    if (result.ok()) branch().turn_starts.push_back(start);
    return result;
  }

  ModelFlags model_;
  SamplingFlags sampling_;
  DraftFlags draft_;
  std::optional<std::string> system_;
  int64_t max_tokens_ = 512;

  std::unique_ptr<ModelBundle> bundle_;
  std::unique_ptr<DraftSource> drafts_;
  std::optional<Generator> generator_;
  std::vector<Branch> branches_;
  size_t current_ = 0;
  GenerationStats stats_;
};

}  // namespace

std::unique_ptr<Command> MakeChatCommand() { return std::make_unique<ChatCommand>(); }

}  // namespace kvasir
