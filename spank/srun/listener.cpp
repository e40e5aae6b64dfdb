#include "spank/srun/listener.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <exception>
#include <utility>

#include "base/net/ipv4.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"
#include "base/time/clock.hpp"
#include "spank/server/hang_report.hpp"
#include "spank/server/message_server.hpp"
#include "spank/slurm/output.hpp"
#include "spank/slurm/slurm_api.hpp"
#include "spank/srun/command_line.hpp"
#include "spank/srun/job_comment.hpp"
#include "step/messages/control_message.hpp"
#include "step/messages/datagram.hpp"
#include "step/messages/job_record.hpp"
#include "step/server/hang_detector.hpp"

namespace amldist::spank {
namespace {

/// From the first report to the line: time for the reports of tasks that died with it, and for the job's state.
constexpr auto settling = std::chrono::seconds(1);
/// States and stacks of ranks are longer than other messages.
constexpr std::size_t longest_text_message = 4096;
/// Time limits are whole minutes: a shorter step needs no request to slurmctld.
constexpr auto before_any_limit = std::chrono::seconds(50);

Error failed(const char* what) {
  return {Errc::unavailable, text::concat({"no failure reports: ", what, ": ", std::strerror(errno)})};
}

bool bind_to(int socket, std::uint16_t port) noexcept {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  return ::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

/// A port that the site's firewalls leave open for srun, or one that the kernel chooses.
bool bind_somewhere(int socket) noexcept {
  const auto range = srun_port_range();
  if (!range) return bind_to(socket, 0);
  for (std::uint32_t port = range->first; port <= range->second; ++port) {
    if (bind_to(socket, static_cast<std::uint16_t>(port))) return true;
  }
  return false;
}

Result<step::ReportChannel> channel_of(int socket) {
  step::ReportChannel channel;
  sockaddr_in own = {};
  socklen_t length = sizeof own;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) != 0) return failed("no port");
  channel.port = ntohs(own.sin_port);
  if (::getrandom(&channel.token, sizeof channel.token, 0) != sizeof channel.token) return failed("no random number");
  return channel;
}

/// The thread's work, with everything it owns.
class ListenerThread {
 public:
  ListenerThread(int socket, int stop, std::uint64_t token, Listener::Step step, std::string job_record)
      : socket_(socket),
        stop_(stop),
        token_(token),
        step_(std::move(step)),
        job_record_(std::move(job_record)),
        server_({.token = token, .tasks = step_.tasks, .record = step_.record, .tell = tell_user}) {
    if (step_.trace.hang != 0) hang_.emplace(step_.trace.hang, step_.tasks);
  }

  void run() {
    bool srun_ends = false;
    while (!srun_ends) {
      srun_ends = wait();
      receive();
      if (hang_) {
        if (const auto hang = hang_->look(Clock::now())) act_on(*hang);
        if (const auto line = hang_->straggler(Clock::now())) tell_user(text::concat({"straggler: ", *line}));
      }
      if (kill_at_ && Clock::now() >= *kill_at_) kill();
      if (!asked_for_limit_ && Clock::now() >= began_ + before_any_limit) ask_for_limit();
      if (server_.failure().stands() && !first_at_) note_first();
      if (first_at_ && !decided_ && (srun_ends || settled())) decide(!srun_ends);
    }
  }

 private:
  void note_first() {
    first_at_ = Clock::now();
    ask_for_limit();
    constexpr auto rounding = std::chrono::seconds(1);
    at_limit_ = limit_at_ && *first_at_ >= *limit_at_ - rounding;
  }

  /// Says that the step hangs, and ends it where the user wants that.
  void act_on(const step::HangDetector::Hang& hang) {
    const std::string step = text::concat({std::to_string(step_.job_id), ".", std::to_string(step_.step_id)});
    const std::string file = write_hang_report(step, hang.report);
    const std::string line =
        text::concat({"hang: ", hang.sentence, hang.place.empty() ? "" : text::concat({"; it is in ", hang.place}),
                      file.empty() ? "" : text::concat({"; its stack is in ", file})});
    tell_user(line);
    if (!step_.trace.ends) return;
    comment(line);
    decided_ = true;  // the deaths that follow are ours
    first_at_ = Clock::now();
    end_srun_with(exit_hang);
    if (!job_record_.empty()) static_cast<void>(append_line(job_record_, step::JobRecord::line_of({exit_hang, line})));
    static_cast<void>(signal_step(step_.job_id, step_.step_id, SIGTERM));
    kill_at_ = Clock::now() + kill_wait();
  }

  void comment(std::string_view line) const {
    if (step_.comments) comment_on_job(step_.job_id, step_.step_id, line);
  }

  void kill() {
    kill_at_.reset();
    static_cast<void>(end_step(step_.job_id, step_.step_id));
  }

  /// Asked for early too, since slurmctld may have forgotten a step whose tasks it ended.
  void ask_for_limit() {
    asked_for_limit_ = true;
    const StepLimit limit = limit_of_step(step_.job_id, step_.step_id);
    slurmctld_answers_ = limit.answered;
    if (limit.left) limit_at_ = Clock::now() + *limit.left;
  }

  [[nodiscard]] bool settled() const { return Clock::now() - *first_at_ >= settling; }

  /// Prints the line, or decides that there is none.
  void decide(bool others_run) {
    decided_ = true;
    if (!server_.failure().stands() || at_limit_ || (slurmctld_answers_ && job_was_ended(step_.job_id))) return;
    const step::RestOfStep rest = rest_of_step(others_run);
    tell_user(server_.failure().sentence(rest));
    comment(server_.failure().sentence(rest));
    if (job_record_.empty()) return;
    static_cast<void>(append_line(job_record_, step::JobRecord::line_of({server_.failure().shell_status(),
                                                                         server_.failure().description(rest)})));
  }

  [[nodiscard]] std::optional<Clock::time_point> next_due() const {
    std::optional<Clock::time_point> first = failure_due();
    for (const auto& due : {hang_ ? hang_->due() : std::nullopt, kill_at_}) {
      if (due && (!first || *due < *first)) first = due;
    }
    return first;
  }

  [[nodiscard]] std::optional<Clock::time_point> failure_due() const {
    if (first_at_) return decided_ ? std::nullopt : std::optional(*first_at_ + settling);
    return asked_for_limit_ ? std::nullopt : std::optional(began_ + before_any_limit);
  }

  /// Returns when something arrives or is due: whether srun ends.
  [[nodiscard]] bool wait() const {
    std::array<pollfd, 2> files = {{{socket_, POLLIN, 0}, {stop_, POLLIN, 0}}};
    int timeout = -1;
    if (const auto due = next_due()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*due - Clock::now());
      timeout = static_cast<int>(std::max<std::int64_t>(0, left.count()));
    }
    static_cast<void>(::poll(files.data(), files.size(), timeout));
    return files[1].revents != 0;
  }

  /// Reads what has arrived. Bounded, so that a flood cannot keep srun from ending.
  void receive() {
    constexpr int most_at_once = 4096;
    std::array<char, longest_text_message> datagram{};
    for (int i = 0; i < most_at_once; ++i) {
      sockaddr_in sender = {};
      socklen_t length = sizeof sender;
      const ssize_t got = ::recvfrom(socket_, datagram.data(), datagram.size(), MSG_DONTWAIT,
                                     reinterpret_cast<sockaddr*>(&sender), &length);
      if (got < 0) return;
      const std::string answer = take({datagram.data(), static_cast<std::size_t>(got)}, sender);
      if (!answer.empty()) reply(answer, sender);
    }
  }

  /// The reply to a message; empty: none.
  std::string take(std::string_view datagram, const sockaddr_in& sender) {
    if (auto answer = server_.take(datagram, Clock::now())) return std::move(*answer);
    if (!hang_) return {};
    if (const auto taken = hang_->take(datagram, token_, Clock::now())) return *taken;
    if (const auto taken = take_deputy(datagram, sender)) return *taken;
    const bool asks = step::parse_message_type(datagram, token_) == step::MessageType::which_deputy;
    if (!asks) return {};
    return deputy_.empty() ? to_datagram(step::MessageType::not_yet, token_)
                           : to_datagram(step::Subject::deputy, deputy_, token_);
  }

  /// The deputy is reached where its node's messages come from.
  std::optional<std::string> take_deputy(std::string_view datagram, const sockaddr_in& sender) {
    const auto port = parse_text(step::Subject::deputy, datagram, token_);
    if (!port) return std::nullopt;
    constexpr std::uint64_t largest_port = 65535;
    if (const auto number = text::to_number(*port, largest_port))
      deputy_ = text::concat({Ipv4{ntohl(sender.sin_addr.s_addr)}.to_string(), ":", std::to_string(*number)});
    return to_datagram(step::MessageType::heard, token_);
  }

  void reply(const std::string& datagram, const sockaddr_in& to) const {
    static_cast<void>(::sendto(socket_, datagram.data(), datagram.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                               reinterpret_cast<const sockaddr*>(&to), sizeof to));
  }

  [[nodiscard]] step::RestOfStep rest_of_step(bool others_run) const {
    return {others_run, told_to_kill_ ? *told_to_kill_ : slurmctld_answers_ && kills_on_bad_exit_by_default()};
  }

  int socket_;
  int stop_;
  std::uint64_t token_;
  Listener::Step step_;
  std::string job_record_;
  std::optional<bool> told_to_kill_ = kills_on_bad_exit();  ///< read here, before srun changes its environment
  MessageServer server_;
  Clock::time_point began_ = Clock::now();
  bool asked_for_limit_ = false;
  bool slurmctld_answers_ = true;              ///< if not, it is not asked again: each time libslurm waits for long
  std::optional<Clock::time_point> limit_at_;  ///< the end of the step's own time limit
  std::optional<Clock::time_point> first_at_;
  bool at_limit_ = false;
  bool decided_ = false;
  std::optional<step::HangDetector> hang_;    ///< only under hang=
  std::optional<Clock::time_point> kill_at_;  ///< the end of KillWait, after a hang
  std::string deputy_;                        ///< "10.0.0.1:40123"; empty: not known yet
};

void run_thread(ListenerThread thread) noexcept {
  try {
    thread.run();
  } catch (const std::exception&) {  // out of memory: srun goes on without the line
  }
}

}  // namespace

Result<std::unique_ptr<Listener>> Listener::open(std::string job_record) {
  FileDescriptor socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket || !bind_somewhere(socket.get())) return failed("no socket");
  FileDescriptor stop(::eventfd(0, EFD_CLOEXEC));
  if (!stop) return failed("no eventfd");
  const auto channel = channel_of(socket.get());
  if (!channel) return channel.error();
  return std::unique_ptr<Listener>(new Listener(std::move(socket), std::move(stop), *channel, std::move(job_record)));
}

Listener::Listener(FileDescriptor socket, FileDescriptor stop, step::ReportChannel channel,
                   std::string job_record) noexcept
    : socket_(std::move(socket)), stop_(std::move(stop)), channel_(channel), job_record_(std::move(job_record)) {}

Listener::~Listener() {
  if (!thread_.joinable()) return;
  static_cast<void>(::eventfd_write(stop_.get(), 1));
  thread_.join();
}

void Listener::watch(Step step) noexcept {
  if (thread_.joinable()) return;
  // srun has a thread that waits for its signals; ours must take none of them.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread(run_thread,
                          ListenerThread(socket_.get(), stop_.get(), channel_.token, std::move(step), job_record_));
  } catch (const std::exception&) {  // no thread: then nothing is reported or answered
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace amldist::spank
