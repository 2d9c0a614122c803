#include "kvasir/cli/line_editor.h"

#include <histedit.h>
#include <signal.h>  // NOLINT: SIGTSTP is POSIX
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <string_view>

namespace kvasir {
namespace {

constexpr int kKeptLines = 1000;
// What a terminal sends around a text that is pasted, once it was asked to.
constexpr const wchar_t* kPasteBegin = L"\\e[200~";
constexpr std::wstring_view kPasteEnd = L"\x1b[201~";

bool CanEdit() {
  const char* const terminal = std::getenv("TERM");
  return isatty(STDIN_FILENO) != 0 && isatty(STDERR_FILENO) != 0 && terminal != nullptr &&
         *terminal != '\0' && std::string_view(terminal) != "dumb";
}

unsigned char Insert(EditLine* editor, const std::wstring& text) {
  return el_winsertstr(editor, text.c_str()) == 0 ? CC_REFRESH : CC_ERROR;
}

unsigned char InsertPaste(EditLine* editor, int) {
  std::wstring text;
  for (wchar_t c = 0; el_wgetc(editor, &c) == 1;) {
    text += c == L'\r' ? L'\n' : c;
    if (!text.ends_with(kPasteEnd)) continue;
    text.resize(text.size() - kPasteEnd.size());
    std::erase_if(text, [](wchar_t one) { return one < L' ' && one != L'\n' && one != L'\t'; });
    return text.empty() ? CC_REFRESH : Insert(editor, text);
  }
  return CC_EOF;
}

unsigned char InsertLineEnd(EditLine* editor, int) { return Insert(editor, L"\n"); }

// Whether texts that are pasted are sent in brackets. Also in a signal's handler.
void BracketPastes(bool are_bracketed) {
  constexpr std::string_view kOn = "\x1b[?2004h";
  constexpr std::string_view kOff = "\x1b[?2004l";
  const std::string_view text = are_bracketed ? kOn : kOff;
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

unsigned char Suspend(EditLine* editor, int) {
  el_set(editor, EL_PREP_TERM, 0);
  BracketPastes(false);
  raise(SIGTSTP);
  el_set(editor, EL_PREP_TERM, 1);
  BracketPastes(true);
  return CC_REDISPLAY;
}

// Signals that end the program leave the terminal as it was; its modes are libedit's business.
void EndBySignal(int number) {
  BracketPastes(false);
  signal(number, SIG_DFL);
  // Here and now, not once the handler is done and another line is asked for.
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, number);
  pthread_sigmask(SIG_UNBLOCK, &signals, nullptr);
  raise(number);
}

}  // namespace

class LineEditor::Impl {
 public:
  Impl() : editor_(el_init("kvasir", stdin, stderr, stderr)), history_(history_init()) {
    if (editor_ == nullptr || history_ == nullptr) return;
    HistEvent event;
    history(history_, &event, H_SETSIZE, kKeptLines);
    history(history_, &event, H_SETUNIQUE, 1);
    el_set(editor_, EL_CLIENTDATA, this);
    el_set(editor_, EL_PROMPT, &Impl::Prompt);
    el_set(editor_, EL_HIST, history, history_);
    el_set(editor_, EL_EDITOR, "emacs");
    el_set(editor_, EL_SIGNAL, 1);  // the window's size
    Bind(L"kvasir-paste", kPasteBegin, InsertPaste);
    Bind(L"kvasir-line-end", L"\\e^M", InsertLineEnd);
    el_set(editor_, EL_BIND, "\\e^J", "kvasir-line-end", nullptr);
    Bind(L"kvasir-drop", L"^C", &Impl::Drop);
    Bind(L"kvasir-suspend", L"^Z", Suspend);
    el_set(editor_, EL_BIND, "\\e[3~", "ed-delete-next-char", nullptr);
    el_set(editor_, EL_BIND, "\\e[H", "ed-move-to-beg", nullptr);
    el_set(editor_, EL_BIND, "\\e[F", "ed-move-to-end", nullptr);
    el_set(editor_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
    el_source(editor_, nullptr);  // ~/.editrc
    // Their keys are bound.
    el_set(editor_, EL_SETTY, "-d", "-isig", nullptr);
  }
  ~Impl() {
    if (editor_ != nullptr) el_end(editor_);
    if (history_ != nullptr) history_end(history_);
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  bool is_good() const { return editor_ != nullptr && history_ != nullptr; }

  std::optional<std::string> Read(const std::string& prompt, bool* is_dropped) {
    prompt_ = prompt;
    is_dropped_ = false;
    el_set(editor_, EL_PREP_TERM, 1);  // before the prompt says that keys are read
    BracketPastes(true);
    int count = 0;
    errno = 0;
    const char* const line = el_gets(editor_, &count);
    const bool is_interrupted = line == nullptr && count < 0 && errno == EINTR;
    BracketPastes(false);
    *is_dropped = is_dropped_ = is_dropped_ || is_interrupted;
    if (is_dropped_) return std::string();
    if (line == nullptr || count <= 0) return std::nullopt;
    std::string text(line, static_cast<size_t>(count));
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
    HistEvent event;
    if (!text.empty()) history(history_, &event, H_ENTER, text.c_str());
    return text;
  }

 private:
  static Impl* Of(EditLine* editor) {
    Impl* impl = nullptr;
    el_get(editor, EL_CLIENTDATA, &impl);
    return impl;
  }
  static char* Prompt(EditLine* editor) { return Of(editor)->prompt_.data(); }
  static unsigned char Drop(EditLine* editor, int) {
    Of(editor)->is_dropped_ = true;
    std::fputs("^C\n", stderr);
    return CC_NEWLINE;
  }
  // Wide: of other names libedit makes copies that it never frees. All of them are constants.
  void Bind(const wchar_t* name, const wchar_t* key, unsigned char (*action)(EditLine*, int)) {
    el_wset(editor_, EL_ADDFN, name, name, action);
    el_wset(editor_, EL_BIND, key, name, nullptr);
  }

  EditLine* const editor_;
  History* const history_;
  std::string prompt_;
  bool is_dropped_ = false;
};

std::unique_ptr<LineEditor> LineEditor::OfTerminal() {
  if (!CanEdit()) return nullptr;
  // Characters are UTF-8 here whatever the environment says.
  if (std::setlocale(LC_CTYPE, "C.UTF-8") == nullptr) return nullptr;
  for (const int number : {SIGTERM, SIGHUP, SIGQUIT}) signal(number, EndBySignal);
  auto impl = std::make_unique<Impl>();
  if (!impl->is_good()) return nullptr;
  return std::unique_ptr<LineEditor>(new LineEditor(std::move(impl)));
}

LineEditor::LineEditor(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
LineEditor::~LineEditor() = default;

std::optional<std::string> LineEditor::Read(const std::string& prompt, bool* is_dropped) {
  return impl_->Read(prompt, is_dropped);
}

}  // namespace kvasir
