#include "spank/stepd/fallback_server.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "base/text/text.hpp"
#include "base/time/clock.hpp"
#include "spank/server/message_server.hpp"
#include "spank/slurm/output.hpp"
#include "spank/slurm/slurm_api.hpp"

namespace amldist::spank {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// From the first report to the line: time for the reports of tasks that died with it, and for the job's state.
constexpr seconds time_to_settle{1};
/// Who waits for an answer asks at least twice a second.
constexpr milliseconds silence_that_ends{1500};
/// After the last task of this node, whatever still comes.
constexpr seconds longest_rest{5};
constexpr seconds slurmctld_timeout{2};
constexpr std::size_t longest_message = 4096;
constexpr std::size_t most_notices = std::size_t{8} << 20;

class FallbackServerThread {
 public:
  FallbackServerThread(int socket, int begin, int stop, const FallbackServer::Step& step)
      : socket_(socket),
        begin_(begin),
        stop_(stop),
        step_(step),
        server_({.token = step.token,
                 .tasks = step.tasks,
                 .nodes = step.nodes,
                 .most_notices = most_notices,
                 .tell = tell_step}) {}

  void run() {
    wait_for_output();
    while (!node_ended()) {
      wait();
      take_all();
      decide_if_settled();
    }
    const auto latest = Clock::now() + longest_rest;
    while (Clock::now() < latest && has_to_do()) {
      wait();
      take_all();
      decide_if_settled();
    }
  }

 private:
  [[nodiscard]] bool node_ended() const noexcept { return ended_; }

  /// Until the step's output is there, or will not be.
  void wait_for_output() const {
    std::array<pollfd, 2> files = {{{begin_, POLLIN, 0}, {stop_, POLLIN, 0}}};
    while (::poll(files.data(), files.size(), -1) < 0 && errno == EINTR) {
    }
  }

  /// After this node's tasks: whether somebody may still ask, or the line is due.
  [[nodiscard]] bool has_to_do() const {
    const bool asked = last_question_ && Clock::now() - *last_question_ < silence_that_ends;
    return asked || (first_at_ && !decided_);
  }

  /// Until something comes or is due.
  void wait() {
    constexpr int no_file = -1;
    std::array<pollfd, 2> files = {{{socket_, POLLIN, 0}, {ended_ ? no_file : stop_, POLLIN, 0}}};
    constexpr int soon_ms = 100;
    const bool is_due = ended_ || (first_at_ && !decided_);
    static_cast<void>(::poll(files.data(), files.size(), is_due ? soon_ms : -1));
    ended_ = ended_ || files[1].revents != 0;
  }

  /// Reads what has come. Bounded, so that a flood cannot keep the thread from ending.
  void take_all() {
    constexpr int most_at_once = 1024;
    for (int i = 0; i < most_at_once && take_one(); ++i) {
    }
    if (!first_at_ && server_.failure().stands()) first_at_ = Clock::now();
  }

  bool take_one() {
    std::array<char, longest_message> datagram{};
    sockaddr_in sender = {};
    socklen_t length = sizeof sender;
    const ssize_t got = ::recvfrom(socket_, datagram.data(), datagram.size(), MSG_DONTWAIT,
                                   reinterpret_cast<sockaddr*>(&sender), &length);
    if (got < 0) return false;
    const auto answer = server_.take({datagram.data(), static_cast<std::size_t>(got)}, Clock::now());
    if (!answer || answer->empty()) return true;
    last_question_ = Clock::now();
    static_cast<void>(::sendto(socket_, answer->data(), answer->size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                               reinterpret_cast<const sockaddr*>(&sender), sizeof sender));
    return true;
  }

  void decide_if_settled() {
    if (!first_at_ || decided_ || Clock::now() - *first_at_ < time_to_settle) return;
    decided_ = true;
    if (!server_.failure().stands() || slurm_ended_the_job()) return;
    constexpr bool kills = false;  // that is srun's
    tell_step(server_.failure().sentence({!ended_, kills, false}));
  }

  /// False where slurmctld does not answer soon. libslurm may wait for long, so another process asks.
  [[nodiscard]] bool slurm_ended_the_job() const {
    const auto ask = [this] { return std::string(job_was_ended(step_.job_id) ? "ended" : ""); };
    return answer_as_user(step_.rights, ask, slurmctld_timeout) == "ended";
  }

  int socket_;
  int begin_;
  int stop_;
  FallbackServer::Step step_;
  MessageServer server_;
  bool ended_ = false;  ///< this node's tasks have ended
  bool decided_ = false;
  std::optional<Clock::time_point> first_at_;
  std::optional<Clock::time_point> last_question_;
};

void run_in_sruns_place(FallbackServerThread thread) noexcept {
  try {
    thread.run();
  } catch (const std::exception&) {  // out of memory: the step goes on without
  }
}

Error cannot_listen(std::uint16_t port) {
  return {Errc::unavailable, text::concat({"UDP port ", std::to_string(port), ": ", std::strerror(errno)})};
}

}  // namespace

FallbackServer::FallbackServer(FileDescriptor socket, FileDescriptor begin, FileDescriptor stop) noexcept
    : socket_(std::move(socket)), begin_(std::move(begin)), stop_(std::move(stop)) {}

void FallbackServer::begin() const noexcept { static_cast<void>(::eventfd_write(begin_.get(), 1)); }

Result<std::unique_ptr<FallbackServer>> FallbackServer::open(std::uint16_t port, Step step) {
  FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  if (!socket || ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    return cannot_listen(port);
  }
  FileDescriptor begin(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  FileDescriptor stop(::eventfd(0, EFD_CLOEXEC));
  if (!begin || !stop) return cannot_listen(port);
  std::unique_ptr<FallbackServer> own(new FallbackServer(std::move(socket), std::move(begin), std::move(stop)));
  // slurmstepd's own threads take its signals.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    own->thread_ = std::make_unique<std::thread>(
        run_in_sruns_place, FallbackServerThread(own->socket_.get(), own->begin_.get(), own->stop_.get(), step));
  } catch (const std::exception&) {
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!own->thread_) return Error{Errc::unavailable, "no thread for it: out of memory or processes"};
  return own;
}

FallbackServer::~FallbackServer() {
  if (!thread_) return;
  if (holder_ != ::getpid()) {  // a fork has no copy of the thread, and must not end the parent's
    static_cast<void>(thread_.release());
    return;
  }
  static_cast<void>(::eventfd_write(stop_.get(), 1));
  thread_->join();
}

}  // namespace amldist::spank
