#include "capi/handles.hpp"

#include <unistd.h>

#include <atomic>
#include <deque>
#include <mutex>

namespace amldist::capi {
namespace {

/// Shells of finalized handles, so that their addresses are not given to others at once. A few bytes each, and so many.
constexpr std::size_t most_retired = 4096;

/// The process that has a world; 0: none. A child of that process may make one of its own.
std::atomic<pid_t>& seat() noexcept {
  static std::atomic<pid_t> owner = 0;
  return owner;
}

/// Worlds on that seat.
std::atomic<int>& sitters() noexcept {
  static std::atomic<int> number = 0;
  return number;
}

}  // namespace

Error forked() {
  return {Errc::unavailable,
          "the communicator belongs to the process that this one was forked from: only that process can use it"};
}

Error refusal_of(const amldist_comm* comm) {
  if (comm == nullptr) return {Errc::invalid_argument, "the communicator is NULL"};
  if (comm->impl == nullptr) return {Errc::invalid_argument, "the communicator was finalized before"};
  return forked();
}

std::shared_ptr<collective::Communicator> retire(amldist_comm* comm) {
  static std::mutex mutex;
  // Never destroyed: an exit handler of the program may finalize, after those of this library.
  static auto* const retired = new std::deque<std::unique_ptr<amldist_comm>>;
  const std::lock_guard lock(mutex);
  auto impl = std::move(comm->impl);
  retired->emplace_back(comm);
  if (retired->size() > most_retired) retired->pop_front();
  return impl;
}

WorldSeat::WorldSeat() noexcept {
  const pid_t own = ::getpid();
  pid_t owner = seat().load();
  taken_ = owner != own && seat().compare_exchange_strong(owner, own);
  if (taken_) sitters().store(1);
}

WorldSeat::~WorldSeat() {
  if (taken_ && !kept_) leave();
}

void WorldSeat::share() noexcept { sitters().fetch_add(1); }

void WorldSeat::leave() noexcept {
  if (sitters().fetch_sub(1) == 1) seat().store(0);
}

}  // namespace amldist::capi
