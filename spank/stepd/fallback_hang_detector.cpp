#include "spank/stepd/fallback_hang_detector.hpp"

#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <exception>
#include <optional>
#include <vector>

#include "base/text/text.hpp"
#include "base/time/clock.hpp"
#include "spank/server/hang_report.hpp"
#include "spank/slurm/output.hpp"
#include "spank/slurm/slurm_api.hpp"
#include "step/messages/datagram.hpp"
#include "step/messages/srun_link.hpp"
#include "step/server/hang_detector.hpp"

namespace amldist::spank {
namespace {

using text::concat;

constexpr std::chrono::milliseconds writing_timeout{5000};

class DeputyThread {
 public:
  DeputyThread(FallbackStep step, int socket, int stop)
      : step_(std::move(step)), socket_(socket), stop_(stop), detector_(step_.seconds, step_.tasks) {}

  void run() {
    while (!stopped()) {
      receive();
      if (const auto hang = detector_.look(Clock::now())) act_on(*hang);
      if (const auto line = detector_.straggler(Clock::now())) tell(concat({"straggler: ", *line}));
      if (kill_at_ && Clock::now() >= *kill_at_) {
        kill_at_.reset();
        static_cast<void>(end_step(step_.job_id, step_.step_id));
      }
    }
  }

 private:
  /// Waits until something arrives or is due: whether slurmstepd ends.
  [[nodiscard]] bool stopped() const {
    std::array<pollfd, 2> files = {{{socket_, POLLIN, 0}, {stop_, POLLIN, 0}}};
    constexpr int while_somebody_waits_ms = 1000;
    const int timeout = detector_.due() || kill_at_ ? while_somebody_waits_ms : -1;
    static_cast<void>(::poll(files.data(), files.size(), timeout));
    return files[1].revents != 0;
  }

  void receive() {
    constexpr int most_at_once = 4096;
    std::vector<char> datagram(step::longest_answer);
    for (int i = 0; i < most_at_once; ++i) {
      sockaddr_in sender = {};
      socklen_t length = sizeof sender;
      const ssize_t got = ::recvfrom(socket_, datagram.data(), datagram.size(), MSG_DONTWAIT,
                                     reinterpret_cast<sockaddr*>(&sender), &length);
      if (got < 0) return;
      const auto answer =
          detector_.take({datagram.data(), static_cast<std::size_t>(got)}, step_.token, Clock::now()).value_or("");
      if (answer.empty()) continue;
      static_cast<void>(::sendto(socket_, answer.data(), answer.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                                 reinterpret_cast<const sockaddr*>(&sender), length));
    }
  }

  void act_on(const step::HangDetector::Hang& hang) {
    const auto file = answer_as_user(
        step_.rights,
        [&] {
          // Where the folder is not to be had, the report goes to /tmp.
          static_cast<void>(::chdir(step_.folder.c_str()) == 0 || ::chdir("/") == 0);
          return write_hang_report(step_.name, hang.report);
        },
        writing_timeout);
    tell(concat({"hang: ", hang.sentence, hang.place.empty() ? "" : concat({"; it is in ", hang.place}),
                 file && !file->empty() ? concat({"; its stack is in ", *file}) : ""}));
    if (!step_.ends) return;
    static_cast<void>(signal_step(step_.job_id, step_.step_id, SIGTERM));
    kill_at_ = Clock::now() + kill_wait();
  }

  void tell(const std::string& line) const {
    tell_step(line);  // an srun that was only stopped prints it
    log_for_administrator(concat({"step ", step_.name, ", whose srun does not answer: ", line}));
  }

  FallbackStep step_;
  int socket_;
  int stop_;
  step::HangDetector detector_;
  std::optional<Clock::time_point> kill_at_;  ///< the end of KillWait, after a hang
};

void run_deputy(DeputyThread thread) noexcept {
  try {
    thread.run();
  } catch (const std::exception&) {  // out of memory: nobody stands in for srun
  }
}

std::uint16_t bound_port(int socket) noexcept {
  sockaddr_in own = {};
  own.sin_family = AF_INET;
  socklen_t length = sizeof own;
  if (::bind(socket, reinterpret_cast<const sockaddr*>(&own), length) != 0) return 0;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&own), &length) != 0) return 0;
  return ntohs(own.sin_port);
}

}  // namespace

FallbackHangDetector::FallbackHangDetector(FallbackStep step) noexcept
    : socket_(step::open_socket()), stop_(::eventfd(0, EFD_CLOEXEC)) {
  const std::uint16_t port = socket_ && stop_ ? bound_port(socket_.get()) : std::uint16_t{0};
  if (port == 0) return;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::thread(run_deputy, DeputyThread(std::move(step), socket_.get(), stop_.get()));
    port_ = port;
  } catch (const std::exception&) {
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

FallbackHangDetector::~FallbackHangDetector() {
  if (!thread_.joinable()) return;
  static_cast<void>(::eventfd_write(stop_.get(), 1));
  thread_.join();
}

}  // namespace amldist::spank
