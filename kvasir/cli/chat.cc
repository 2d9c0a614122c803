// kvasir chat: a conversation in the terminal. Each turn evaluates only what is new.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

#include "kvasir/chat/answer_parser.h"
#include "kvasir/cli/commands.h"
#include "kvasir/cli/draft_flags.h"
#include "kvasir/cli/message_reader.h"
#include "kvasir/cli/model_flags.h"
#include "kvasir/cli/output.h"
#include "kvasir/cli/output_file.h"
#include "kvasir/cli/printable.h"
#include "kvasir/engine/cached_sequence_file.h"

namespace kvasir {
namespace {

constexpr const char* kHelp =
    "/stats    tokens, speed and cache of the last answer\n"
    "/undo     take the last turn back; its rows are dropped, nothing is evaluated again\n"
    "/fork     go on in a copy of this conversation (all blocks are shared)\n"
    "/switch N go to branch N\n"
    "/drop N   forget branch N, which gives back its memory\n"
    "/save F   write this conversation and its cache to the file F\n"
    "/load F   go on with the conversation of such a file, in a new branch\n"
    "/help     this text\n"
    "/quit     leave (also Ctrl-D); Ctrl-C stops an answer\n"
    "//...     a message that begins with /\n"
    "\"\"\"       begins and ends a message of several lines; what is pasted is one message\n";

// One conversation: its messages, its cache, and where each turn began.
struct Branch {
  Json::Array messages;
  CachedSequence sequence;
  std::vector<Position> turn_starts;

  // No turn begins behind what is known to be there: a template may drop some of an earlier answer,
  // memory may be short of what undoing goes back to.
  void BoundTurns(Position most) {
    for (Position& start : turn_starts) start = std::min(start, most);
  }
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
    if (!start.is_int() || start.as_int() < 0) {
      return {ErrorCode::kCorrupt, path + ": a turn begins outside the conversation"};
    }
    conversation.turn_starts.push_back(std::min(start.as_int(), loaded.sequence.position()));
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
    KVASIR_TRY_OK(CheckRange("--max-tokens", max_tokens_, 1, kNoMost));
    KVASIR_TRY_OK(sampling_.Check());
    KVASIR_TRY_OK(draft_.Prepare(model_));
    model_.text_need = TextNeed::kChat;
    KVASIR_TRY(bundle_, model_.Load());
    dialect_ = DialectOf(bundle_->chat()->source());
    markers_ = bundle_->MarkersOf(dialect_);
    KVASIR_TRY(drafts_, draft_.Load(model_, *bundle_));
    generator_.emplace(bundle_.get());
    generator_->UseDrafter(drafts_->NewDrafter(nullptr), draft_.MaxDrafts());
    KVASIR_TRY(CachedSequence sequence, bundle_->NewSequence());
    branches_.push_back({{}, std::move(sequence), {}});
    if (!system_.value_or("").empty()) AddMessage("system", *system_);
    InstallInterruptHandler();
    std::fprintf(stderr, "/help lists commands\n");
    MessageReader reader;
    while (std::optional<std::string> text = reader.Read()) {
      // Several lines are never a command, whatever was pasted.
      const bool is_command = text->starts_with('/') && text->find('\n') == text->npos;
      const bool is_escaped = is_command && text->starts_with("//");
      if (text->empty()) continue;
      if (is_escaped) text->erase(0, 1);
      Status status;
      if (is_command && !is_escaped) {
        const Slash command = CommandIn(*text);
        if (command.name == "/quit" && command.argument.empty()) break;
        status = RunSlash(command);
      } else {
        status = Answer(*text);
      }
      if (!status.ok()) {
        if (status.error().code == ErrorCode::kIo) return status;
        std::fprintf(stderr, "%s\n", Printable(status.error().message).c_str());
      }
    }
    return Print("\n");
  }

 private:
  Branch& branch() { return branches_[current_]; }

  void AddMessage(const char* role, std::string content) {
    branch().messages.push_back(Json::Object{{"role", role}, {"content", std::move(content)}});
  }

  struct Slash {
    std::string name;
    std::string argument;  // without blanks around it
  };
  static Slash CommandIn(const std::string& line) {
    constexpr const char* kBlanks = " \t";
    const size_t end = std::min(line.find_first_of(kBlanks), line.size());
    const size_t begin = std::min(line.find_first_not_of(kBlanks, end), line.size());
    std::string argument = line.substr(begin);
    argument.erase(argument.find_last_not_of(kBlanks) + 1);
    return {line.substr(0, end), std::move(argument)};
  }

  Status RunSlash(const Slash& command) {
    const auto& [name, argument] = command;
    const bool is_file = name == "/save" || name == "/load";
    const bool is_branch = name == "/switch" || name == "/drop";
    if ((is_file || is_branch) == argument.empty()) {
      return {ErrorCode::kInvalidArgument,
              name + (is_file     ? " needs a file"
                      : is_branch ? " needs the number of a branch"
                                  : ": unknown, or takes nothing behind it; /help lists commands")};
    }
    if (name == "/save") return Save(argument);
    if (name == "/load") return Load(argument);
    if (name == "/switch") return Switch(argument);
    if (name == "/drop") return Drop(argument);
    if (name == "/undo") return Undo();
    if (name == "/fork") return Fork();
    if (name == "/stats") return ShowStats();
    if (name == "/help") {
      std::fprintf(stderr, "%s", kHelp);
      return {};
    }
    return {ErrorCode::kInvalidArgument, "unknown command " + name + "; /help lists them, //" +
                                             name.substr(1) + "... is a message that begins so"};
  }

  Status Fork() {
    branches_.push_back(branch().Fork());
    current_ = branches_.size() - 1;
    std::fprintf(stderr, "branch %zu of %zu, %s of cache shared\n", current_, branches_.size(),
                 FormatBytes(branch().sequence.sequence().nbytes()).c_str());
    return {};
  }

  Status ShowStats() {
    const KvPoolStats pool = bundle_->pool().Stats();
    std::fprintf(stderr,
                 "%s\nposition %lld of %lld | branch %zu of %zu | pool %s used, %s reserved"
                 " of %s\n",
                 StatsLine(stats_).c_str(), static_cast<long long>(branch().sequence.position()),
                 static_cast<long long>(bundle_->model().context_tokens()), current_,
                 branches_.size(), FormatBytes(pool.used_bytes).c_str(),
                 FormatBytes(pool.reserved_bytes).c_str(), FormatBytes(pool.budget_bytes).c_str());
    return {};
  }

  Status Undo() {
    Branch& b = branch();
    if (b.turn_starts.empty()) return {ErrorCode::kFailedPrecondition, "there is no turn to undo"};
    const Position before = b.sequence.position();
    const Position wanted = b.turn_starts.back();
    const Position after = b.sequence.RewindTo(wanted);
    b.turn_starts.pop_back();
    b.BoundTurns(after);
    while (!b.messages.empty() && *b.messages.back().GetString("role") != "user") {
      b.messages.pop_back();
    }
    if (!b.messages.empty()) b.messages.pop_back();
    std::fprintf(stderr, "back from %lld to %lld tokens\n", static_cast<long long>(before),
                 static_cast<long long>(after));
    if (after < wanted) {
      std::fprintf(stderr,
                   "(the %lld before them are no longer cached: they are evaluated again)\n",
                   static_cast<long long>(wanted - after));
    }
    return {};
  }

  Result<size_t> BranchNumbered(const std::string& number) const {
    char* end = nullptr;
    const unsigned long wanted = std::strtoul(number.c_str(), &end, 10);
    if (*end == '\0' && wanted < branches_.size()) return wanted;
    return {ErrorCode::kInvalidArgument,
            "branches are numbered 0 to " + std::to_string(branches_.size() - 1)};
  }

  Status Drop(const std::string& number) {
    KVASIR_TRY(const size_t dropped, BranchNumbered(number));
    if (branches_.size() == 1) {
      return {ErrorCode::kFailedPrecondition, "the only branch cannot be dropped"};
    }
    branches_.erase(branches_.begin() + static_cast<ptrdiff_t>(dropped));
    if (current_ > dropped || current_ == branches_.size()) --current_;
    std::fprintf(stderr, "branch %zu of %zu, %lld tokens\n", current_, branches_.size(),
                 static_cast<long long>(branch().sequence.position()));
    return {};
  }

  Status Switch(const std::string& number) {
    KVASIR_TRY(current_, BranchNumbered(number));
    std::fprintf(stderr, "branch %zu, %lld tokens\n", current_,
                 static_cast<long long>(branch().sequence.position()));
    return {};
  }

  Status Save(const std::string& path) {
    const Branch& b = branch();
    if (const Status s = CheckMayWriteSnapshot(path); !s.ok()) {
      return {ErrorCode::kFailedPrecondition, s.error().message};
    }
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

  // A turn that fails, or is stopped before it says anything, leaves the conversation as it was.
  Status Answer(const std::string& text) {
    ClearInterrupt();
    AddMessage("user", text);
    auto result = Generate();
    if (!result.ok()) {
      branch().messages.pop_back();
      return Dropped(result.error());
    }
    stats_ = result->stats;
    if (result->finish == FinishReason::kCancelled && result->tokens.empty()) {
      branch().messages.pop_back();
      branch().turn_starts.pop_back();
      return Print("[stopped; the question was dropped]\n");
    }
    AddMessage("assistant", SaidIn(result->text));
    KVASIR_TRY_OK(Print(result->finish == FinishReason::kCancelled ? " [stopped]\n" : "\n"));
    if (result->finish == FinishReason::kLength) {
      const bool is_short = stats_.generated_tokens < max_tokens_;
      std::fprintf(stderr, "(cut off after %lld tokens: %s)\n",
                   static_cast<long long>(stats_.generated_tokens),
                   is_short ? "the context is full; /undo goes back" : "-n allows more");
    }
    return {};
  }

  // What later turns hear of an answer: templates leave thoughts out of a text, but not messages of
  // thoughts.
  std::string SaidIn(const std::string& answer) const {
    if (!dialect_.is_harmony()) return answer;
    AnswerParser parser({.dialect = dialect_, .reads_thoughts = true});
    AnswerParts parts = parser.Push(answer);
    for (AnswerPart& part : parser.Finish()) parts.push_back(std::move(part));
    std::string said;
    for (const AnswerPart& part : parts) {
      if (part.kind == AnswerPart::Kind::kText) said += part.text;
    }
    return said;
  }

  // What to do about a turn that failed, in the words of this program.
  Status Dropped(const Error& error) const {
    if (error.code == ErrorCode::kIo) return error;
    std::string message =
        error.message + "\n(the question was dropped; /undo takes back the turn before it";
    if (branches_.size() > 1) message += ", /drop N another branch";
    return {error.code, message + ")"};
  }

  Result<GenerationResult> Generate() {
    GenerationRequest request;
    KVASIR_TRY(request.prompt, bundle_->ChatTokens(branch().messages));
    request.max_tokens = max_tokens_;
    request.sampling = sampling_.Resolve(bundle_->config().generation);
    request.shown_special = markers_;
    bool has_said = false;
    Status printed;
    GenerationCallbacks callbacks;
    callbacks.on_prefill = ShowPrefillProgress;
    callbacks.is_cancelled = [&] { return Interrupted() || !printed.ok(); };
    callbacks.on_text = [&](std::string_view piece) {
      has_said = true;
      if (printed.ok()) printed = PrintAnswer(piece);
    };
    Branch& b = branch();
    b.sequence.AddRestorePoint();  // for /undo, where layers forget rows
    const Position start = b.sequence.position();
    auto result = generator_->Generate(request, b.sequence, callbacks);
    ClearInterrupt();
    KVASIR_TRY_OK(printed);
    if (result.ok()) {
      b.turn_starts.push_back(start);
      b.BoundTurns(result->stats.cached_tokens);
    } else if (has_said) {
      KVASIR_TRY_OK(Print("\n"));
    }
    return result;
  }

  ModelFlags model_;
  SamplingFlags sampling_;
  DraftFlags draft_;
  std::optional<std::string> system_;
  int64_t max_tokens_ = 512;

  std::unique_ptr<ModelBundle> bundle_;
  ChatDialect dialect_;
  std::vector<Token> markers_;
  std::unique_ptr<DraftSource> drafts_;
  std::optional<Generator> generator_;
  std::vector<Branch> branches_;
  size_t current_ = 0;
  GenerationStats stats_;
};

}  // namespace

std::unique_ptr<Command> MakeChatCommand() { return std::make_unique<ChatCommand>(); }

}  // namespace kvasir
