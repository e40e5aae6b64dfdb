#include "step/cause/fault_note.hpp"

#include <cxxabi.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <string>
#include <string_view>
#include <typeinfo>

#include "base/os/environment.hpp"
#include "base/text/text.hpp"
#include "launch/placement/task_map.hpp"
#include "step/cause/exception.hpp"

namespace amldist::step {
namespace {

constexpr std::array<int, 5> fatal_signals = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr std::size_t longest_field = 1000;

/// The functions of the C++ library that the program uses, which need not be the one in this library.
struct ExceptionLibrary {
  std::terminate_handler (*set_terminate)(std::terminate_handler) = nullptr;
  std::exception_ptr (*current)() = nullptr;
};

/// What glibc keeps of a failed assertion, or of a damaged heap.
struct AbortMessage {
  unsigned size;
  std::array<char, longest_field> text;
};

/// One field to a line, printable.
class Text {
 public:
  void add(std::string_view part) noexcept {
    for (const char c : part.substr(0, longest_field))
      if (size_ < bytes_.size()) bytes_[size_++] = c >= ' ' && c < 0x7f ? c : c == '\n' ? ' ' : '?';
  }
  void end_line() noexcept {
    if (size_ < bytes_.size()) bytes_[size_++] = '\n';
  }
  void line(std::string_view part) noexcept {
    add(part);
    end_line();
  }
  [[nodiscard]] std::string_view all() const noexcept { return {bytes_.data(), size_}; }

 private:
  std::array<char, 4 * longest_field> bytes_{};
  std::size_t size_ = 0;
};

/// All that a signal's handler needs, so that it allocates nothing; and takes little of its stack, which may be one of
/// 8 KiB for signals alone, as Python makes it.
struct Notes {
  std::array<std::string, 2> folders;  ///< "/dev/shm/aml-dist-1000", "/tmp/aml-dist-1000"
  std::string step;                    ///< "12.0"
  std::string file;                    ///< "3.error"
  int traceback_signal = 0;
  int traceback_file = -1;
  const AbortMessage* const* abort_message = nullptr;
  std::array<struct sigaction, fatal_signals.size()> before = {};
  ExceptionLibrary exceptions;
  std::terminate_handler terminate_before = nullptr;
  std::atomic<bool> is_left = false;
  std::atomic<pid_t> noting = 0;  ///< the thread that is about to leave one
  std::array<char, 4096> traceback = {};
  Text text;
};

Notes& notes() {
  static auto* const all = new Notes;  // a signal may come while static objects are destroyed
  return *all;
}

struct Place {
  std::string_view file;
  std::string_view line;
  std::string_view function;
};

/// A folder below another that only this user may use; -1 if there is no such folder.
int own_folder(int in, const char* name) noexcept {
  static_cast<void>(::mkdirat(in, name, 0700));
  const int folder = ::openat(in, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat status = {};
  if (folder >= 0 && ::fstat(folder, &status) == 0 && status.st_uid == ::geteuid() && (status.st_mode & 077U) == 0)
    return folder;
  if (folder >= 0) ::close(folder);
  return -1;
}

/// The first note of a rank counts, as with exceptions.
bool write_in(const std::string& root, std::string_view text) noexcept {
  const int outer = own_folder(AT_FDCWD, root.c_str());
  const int inner = outer >= 0 ? own_folder(outer, notes().step.c_str()) : -1;
  const int file =
      inner >= 0 ? ::openat(inner, notes().file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600)
                 : -1;
  const bool is_written = file >= 0 && ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  for (const int each : {file, inner, outer})
    if (each >= 0) ::close(each);
  return is_written || inner >= 0;
}

void leave(std::string_view type, std::string_view words, const Place& place) noexcept {
  if (notes().is_left.exchange(true)) return;
  timespec now = {};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  std::array<char, 24> seconds{};
  std::size_t first = seconds.size();
  for (auto rest = static_cast<std::uint64_t>(now.tv_sec); rest != 0 || first == seconds.size(); rest /= 10)
    seconds[--first] = static_cast<char>('0' + rest % 10);
  Text& text = notes().text;
  text.line(exception_file_head);
  text.line({seconds.data() + first, seconds.size() - first});
  for (const std::string_view field : {type, words, place.file, place.line, place.function}) text.line(field);
  for (const std::string& folder : notes().folders)
    if (write_in(folder, text.all())) return;
}

bool is_library(std::string_view file) noexcept {
  return file.starts_with('<') || file.find("/site-packages/") != std::string_view::npos ||
         file.find("/dist-packages/") != std::string_view::npos || file.find("/lib/python3") != std::string_view::npos;
}

/// Of one line of Python's traceback: `  File "train.py", line 88 in forward`.
Place place_in(std::string_view line) noexcept {
  constexpr std::string_view head = "  File \"";
  constexpr std::string_view middle = "\", line ";
  const auto number = line.find(middle);
  if (!line.starts_with(head) || number == std::string_view::npos) return {};
  const auto rest = line.substr(number + middle.size());
  const auto in = rest.find(" in ");
  return {line.substr(head.size(), number - head.size()), rest.substr(0, in),
          in != std::string_view::npos ? rest.substr(in + 4) : std::string_view()};
}

/// The innermost place in the program's own files; in a library where all of it is one.
Place innermost(std::string_view traceback) noexcept {
  Place first;
  while (!traceback.empty()) {
    const auto end = std::min(traceback.find('\n'), traceback.size());
    const Place place = place_in(traceback.substr(0, end));
    traceback.remove_prefix(std::min(end + 1, traceback.size()));
    if (place.file.empty()) continue;
    if (!is_library(place.file)) return place;
    if (first.file.empty()) first = place;
  }
  return first;
}

/// Where this thread is in a Python program, in the notes' buffer.
Place find_place() noexcept {
  Notes& all = notes();
  auto& buffer = all.traceback;
  if (all.traceback_signal == 0 || ::ftruncate(all.traceback_file, 0) != 0) return {};
  static_cast<void>(::lseek(all.traceback_file, 0, SEEK_SET));
  static_cast<void>(::raise(all.traceback_signal));
  const ssize_t got = ::pread(all.traceback_file, buffer.data(), buffer.size(), 0);
  return got > 0 ? innermost({buffer.data(), static_cast<std::size_t>(got)}) : Place();
}

std::string_view abort_text() noexcept {
  const AbortMessage* const message = notes().abort_message != nullptr ? *notes().abort_message : nullptr;
  if (message == nullptr) return {};
  std::string_view text(message->text.data(), std::min<std::size_t>(message->size, longest_field));
  text = text.substr(0, text.find('\0'));
  while (text.ends_with('\n')) text.remove_suffix(1);
  return text;
}

std::string_view name_of(int signal) noexcept {
  switch (signal) {
    case SIGSEGV:
      return "segmentation fault";
    case SIGBUS:
      return "bus error";
    case SIGFPE:
      return "arithmetic error";
    case SIGILL:
      return "illegal instruction";
    default:
      return "abort";
  }
}

/// Whether this thread is the first that leaves a note. Another one waits for it, and then goes on as without this
/// library: the process must not end before.
bool may_leave() noexcept {
  constexpr int most_pauses = 1000;
  constexpr timespec pause = {0, 1'000'000};
  const auto own = static_cast<pid_t>(::syscall(SYS_gettid));
  pid_t other = 0;
  if (notes().noting.compare_exchange_strong(other, own)) return true;
  for (int i = 0; i < most_pauses && other != own && !notes().is_left; ++i)
    static_cast<void>(::nanosleep(&pause, nullptr));
  return false;
}

void on_signal(int signal, siginfo_t* info, void* /*context*/) noexcept {
  const bool is_from_outside = info->si_code <= 0 && info->si_pid != ::getpid();
  if (!is_from_outside && !notes().is_left && may_leave()) {
    const Place place = find_place();
    const std::string_view words = signal == SIGABRT ? abort_text() : std::string_view();
    if (!words.empty() || !place.file.empty()) leave(name_of(signal), words, place);
    notes().noting = 0;  // the program may go on
  }
  const auto index = static_cast<std::size_t>(std::ranges::find(fatal_signals, signal) - fatal_signals.begin());
  static_cast<void>(::sigaction(signal, &notes().before[index], nullptr));
  // What the kernel reports about an instruction, it reports again when the instruction is repeated.
  if (info->si_code <= 0) static_cast<void>(::raise(signal));
}

/// what() of an exception that is a std::exception. It is not thrown again: the stack may be another library's to
/// unwind.
std::string_view words_of(const std::exception_ptr& exception, const std::type_info& type) noexcept {
  static_assert(sizeof exception == sizeof(void*), "the Itanium C++ ABI: the address of the object");
  void* object = *reinterpret_cast<void* const*>(&exception);
  if (!typeid(std::exception).__do_catch(&type, &object, 1)) return {};
  return static_cast<const std::exception*>(object)->what();
}

/// The exception that nobody has caught. Not a signal's handler: it may allocate.
void leave_exception() {
  const auto current = notes().exceptions.current;
  if (current == nullptr) return;
  const std::exception_ptr exception = current();
  const std::type_info* const type = exception ? exception.__cxa_exception_type() : nullptr;
  if (type == nullptr) return;
  int status = 1;
  char* const name = abi::__cxa_demangle(type->name(), nullptr, nullptr, &status);
  const Place place = may_leave() ? find_place() : Place();
  const std::string_view shown = status == 0 ? name : type->name();
  leave(shown, words_of(exception, *type), place);
}

[[noreturn]] void on_terminate() noexcept {
  static std::atomic<bool> is_left = false;
  if (!is_left.exchange(true)) leave_exception();
  if (notes().terminate_before != nullptr) notes().terminate_before();
  std::abort();
}

template <typename Function>
bool find(void* library, const char* name, Function*& function) noexcept {
  function = reinterpret_cast<Function*>(::dlsym(library, name));
  return function != nullptr;
}

/// Only if it is loaded: the program may want another one than this library would get.
void watch_exceptions() noexcept {
  ExceptionLibrary& found = notes().exceptions;
  if (found.set_terminate != nullptr) return;
  void* const library = ::dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
  ExceptionLibrary all;
  if (library == nullptr || !find(library, "_ZSt17current_exceptionv", all.current) ||
      !find(library, "_ZSt13set_terminatePFvvE", all.set_terminate))
    return;
  found = all;
  notes().terminate_before = all.set_terminate(on_terminate);
}

bool find_places() {
  const std::string stamp = own_variable("AMLDIST_STAMP").value_or("");
  const std::string step = stamp.substr(0, stamp.find(' '));
  const auto rank = text::to_number(own_variable("SLURM_PROCID").value_or(""), most_tasks - 1);
  const bool is_name =
      !step.empty() && step.front() != '.' &&
      step.find_first_not_of("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ._-") == std::string::npos;
  if (!rank || !is_name) return false;
  notes().step = step;
  notes().file = error_file_name(static_cast<std::uint32_t>(*rank));
  const std::string user = std::to_string(::geteuid());
  notes().folders = {"/dev/shm/aml-dist-" + user, "/tmp/aml-dist-" + user};
  return true;
}

void watch_signals() noexcept {
  notes().abort_message =
      static_cast<const AbortMessage* const*>(::dlvsym(RTLD_DEFAULT, "__abort_msg", "GLIBC_PRIVATE"));
  for (std::size_t i = 0; i < fatal_signals.size(); ++i) {
    struct sigaction& before = notes().before[i];
    if (::sigaction(fatal_signals[i], nullptr, &before) != 0 || before.sa_handler == SIG_IGN) continue;
    struct sigaction own = {};
    own.sa_sigaction = on_signal;
    own.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK;
    static_cast<void>(::sigaction(fatal_signals[i], &own, nullptr));
  }
}

}  // namespace

bool note_faults(int traceback_signal, int traceback_file) noexcept try {
  static std::atomic<bool> is_installed = false;
  if (notes().file.empty() && !find_places()) return false;
  if (!is_installed.exchange(true)) {
    notes().traceback_signal = traceback_signal;
    notes().traceback_file = traceback_file;
    watch_signals();
  }
  watch_exceptions();
  return true;
} catch (const std::exception&) {  // out of memory
  return false;
}

}  // namespace amldist::step
