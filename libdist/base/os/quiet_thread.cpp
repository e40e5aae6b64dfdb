#include "base/os/quiet_thread.hpp"

#include <pthread.h>
#include <sys/eventfd.h>

#include <csignal>
#include <exception>
#include <utility>

namespace amldist {
namespace {

void run_quietly(const std::function<void(int)>& body, int stop) noexcept {
  try {
    body(stop);
  } catch (const std::exception&) {
  }
}

}  // namespace

QuietThread::QuietThread() noexcept : stop_(::eventfd(0, EFD_CLOEXEC)) {}

QuietThread::~QuietThread() {
  if (!thread_) return;
  if (holder_ != ::getpid()) {
    static_cast<void>(thread_.release());
    return;
  }
  static_cast<void>(::eventfd_write(stop_.get(), 1));
  thread_->join();
}

bool QuietThread::start(std::function<void(int)> body) noexcept {
  if (!stop_) return false;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    thread_ = std::make_unique<std::thread>(run_quietly, std::move(body), stop_.get());
  } catch (const std::exception&) {
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return is_started();
}

}  // namespace amldist
