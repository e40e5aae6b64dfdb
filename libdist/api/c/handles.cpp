#include "api/c/handles.hpp"

#include <unistd.h>

#include <atomic>
#include <deque>
#include <mutex>
#include <set>

namespace amldist::api {
namespace {

/// All handles of communicators.
struct Handles {
  /// The shells of finalized ones are kept, so that their addresses are not reused at once. A few bytes each, and at
  /// most this many.
  static constexpr std::size_t most_retired = 4096;

  std::mutex mutex;
  std::set<const amldist_comm*> living;
  std::deque<std::unique_ptr<amldist_comm>> retired;
};

/// Never destroyed: an exit handler of the program may finalize, after those of this library.
Handles& handles() {
  static auto* const all = new Handles;
  return *all;
}

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

amldist_comm* make_handle(std::unique_ptr<collective::Communicator> comm, bool is_step_world) {
  std::unique_ptr<amldist_comm> out(new amldist_comm{std::move(comm), is_step_world});
  const std::lock_guard lock(handles().mutex);
  handles().living.insert(out.get());
  return out.release();
}

std::shared_ptr<collective::Communicator> find_living(const amldist_comm* comm) {
  const std::lock_guard lock(handles().mutex);
  return handles().living.contains(comm) ? comm->impl : nullptr;
}

std::shared_ptr<collective::Communicator> retire(amldist_comm* comm) {
  Handles& all = handles();
  const std::lock_guard lock(all.mutex);
  auto impl = std::move(comm->impl);
  all.living.erase(comm);
  all.retired.emplace_back(comm);
  if (all.retired.size() > Handles::most_retired) all.retired.pop_front();
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
