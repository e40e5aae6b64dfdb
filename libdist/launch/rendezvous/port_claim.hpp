// Reserves a port: a lease keeps other aml-dist steps away, and a trial listen finds other programs.
//
// The hash may give two jobs the same port. Seconds of imports pass between the trial and the training script's own
// bind, so a trial is not enough: the node of rank 0 also holds a lock while the step runs. The lock is a file in a
// folder that only root can write, locked with flock(2), so it ends with its holder, however that dies. Ports belong to
// a network namespace, so the file's name contains the namespace's number.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <string>

#include "base/os/file_descriptor.hpp"
#include "base/text/result.hpp"

namespace amldist::launch {

/// Where leases are kept.
inline constexpr const char* lease_folder = "/run/aml-dist/ports";

/// Holds the lease of one port until it is destroyed. Move-only.
class PortClaim {
 public:
  /// Takes the lease and tries the port. Errors: unavailable, with port and host, if another program or step has it. If
  /// the lease file cannot be kept (no such folder, read-only), the claim still succeeds: the port has been tried.
  [[nodiscard]] static Result<PortClaim> take(std::uint16_t port, const std::string& host,
                                              const std::string& folder = lease_folder);

  PortClaim(PortClaim&&) noexcept = default;
  PortClaim& operator=(PortClaim&&) noexcept = default;
  PortClaim(const PortClaim&) = delete;
  PortClaim& operator=(const PortClaim&) = delete;
  /// Releases the lease and removes its file. In a forked child it only closes the descriptor.
  ~PortClaim();

 private:
  PortClaim() = default;

  FileDescriptor lock_;
  std::string path_;
  pid_t holder_ = ::getpid();
};

/// Removes the lease files that nobody holds: a slurmstepd that was killed leaves its own.
void remove_stale_leases(const std::string& folder = lease_folder);

/// Whether a server could listen on the port now, on all addresses of this machine. TIME_WAIT counts as free.
[[nodiscard]] bool port_is_free(std::uint16_t port) noexcept;

/// First port on which users other than root may listen in this network namespace: ip_unprivileged_port_start, or 1024
/// if it cannot be read.
[[nodiscard]] std::uint32_t first_port_for_all();

/// Refuses a port that the user's program could not bind. Root must not listen there for the user, not even briefly.
[[nodiscard]] Result<void> may_listen(uid_t user, std::uint16_t port, const std::string& host,
                                      std::uint32_t first_for_all = first_port_for_all());

}  // namespace amldist::launch
