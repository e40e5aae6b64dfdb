// The contents of the C interface's handles, and access to them.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "base/text/result.hpp"
#include "collective/communicator/communicator.hpp"
#include "collective/communicator/context/request.hpp"

struct amldist_comm {
  std::shared_ptr<amldist::collective::Communicator> impl;  ///< the only owner; empty once finalized
  bool is_step_world = false;                               ///< the process's only world of its step
};

namespace amldist::api {

/// Why a handle cannot be used: it is NULL, finalized, or a copy made by fork().
[[nodiscard]] Error refusal_of(const amldist_comm* comm);

/// Whether this process is a child of the one that it belongs to.
[[nodiscard]] Error forked();

[[nodiscard]] inline bool is_usable(const amldist_comm* comm) noexcept {
  return comm != nullptr && comm->impl != nullptr && comm->impl->is_here();
}

/// A handle of a communicator.
[[nodiscard]] amldist_comm* make_handle(std::unique_ptr<collective::Communicator> comm, bool is_step_world = false);

/// The handle of a request is its address: the handle is one of its owners. The request's origin is the communicator's
/// handle, which knows the ranks that an error names, while it is there.
[[nodiscard]] inline amldist_request* make_handle(collective::RequestPtr request, const amldist_comm* comm) noexcept {
  request->set_origin(comm);
  return reinterpret_cast<amldist_request*>(request.release());
}
[[nodiscard]] inline collective::Request* request_of(amldist_request* handle) noexcept {
  return reinterpret_cast<collective::Request*>(handle);
}

/// The communicator of a handle that may have been finalized meanwhile; nullptr then. Takes a lock.
[[nodiscard]] std::shared_ptr<collective::Communicator> find_living(const amldist_comm* comm);

/// Takes the communicator out of its handle, which is kept for a while: a later use of it gets an error.
[[nodiscard]] std::shared_ptr<collective::Communicator> retire(amldist_comm* comm);

/// A process has one world of its step at a time; worlds that a caller describes are counted separately. Held until the
/// end of the scope, or until leave() if keep() was called. A shrunk world holds a share of it: another world can be
/// made when both have left.
class WorldGuard {
 public:
  WorldGuard() noexcept;
  ~WorldGuard();
  WorldGuard(const WorldGuard&) = delete;
  WorldGuard& operator=(const WorldGuard&) = delete;

  [[nodiscard]] bool is_taken() const noexcept { return taken_; }
  void keep() noexcept { kept_ = true; }
  static void share() noexcept;
  static void leave() noexcept;

 private:
  bool taken_;
  bool kept_ = false;
};

}  // namespace amldist::api
