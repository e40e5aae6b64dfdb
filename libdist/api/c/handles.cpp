#include "api/c/handles.hpp"

#include <unistd.h>

#include <atomic>
#include <deque>
#include <mutex>

namespace amldist::api {
namespace {

/// Keeps the shells of finalized handles, so that their addresses are not reused at once. A few bytes each, and at most
/// this many.
constexpr std::size_t most_retired = 4096;

/// The process that has a world; 0 if there is no world. A child of that process may make its own.
std::atomic<pid_t>& world_owner() noexcept {
  static std::atomic<pid_t> owner = 0;
  return owner;
}

/// Number of its worlds: two while one is shrunk.
std::atomic<int>& worlds() noexcept {
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

WorldGuard::WorldGuard() noexcept {
  const pid_t own = ::getpid();
  pid_t owner = world_owner().load();
  taken_ = owner != own && world_owner().compare_exchange_strong(owner, own);
  if (taken_) worlds().store(1);
}

WorldGuard::~WorldGuard() {
  if (taken_ && !kept_) leave();
}

void WorldGuard::share() noexcept { worlds().fetch_add(1); }

void WorldGuard::leave() noexcept {
  if (worlds().fetch_sub(1) == 1) world_owner().store(0);
}

}  // namespace amldist::api
