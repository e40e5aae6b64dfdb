// A port that is ours: leased against other steps of aml-dist, and tried against everybody else.
//
// Two jobs may come to one port by hash. Between the moment a port is found free and the moment a training script binds
// it lie seconds of imports, so trying is not enough: the node of rank 0 also holds a lock for as long as the step
// runs. The lock is a file under a folder that only root can write, locked with flock(2), so it ends with its holder,
// however that dies. Ports belong to a network namespace, so its number is part of the file's name.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <string>

#include "core/result.hpp"
#include "os/file_descriptor.hpp"

namespace amldist {

/// Where leases are kept.
inline constexpr const char* lease_folder = "/run/aml-dist/ports";

/// Holds the lease of one port until it is destroyed. Move-only.
class PortClaim {
 public:
  /// Takes the lease and tries the port. Errors: unavailable, with port and host, when somebody else has it. A lease
  /// that cannot be kept (no such folder, read-only) does not fail the claim: the port has still been tried.
  [[nodiscard]] static Result<PortClaim> take(std::uint16_t port, const std::string& host,
                                              const std::string& folder = lease_folder);

  PortClaim(PortClaim&&) noexcept = default;
  PortClaim& operator=(PortClaim&&) noexcept = default;
  PortClaim(const PortClaim&) = delete;
  PortClaim& operator=(const PortClaim&) = delete;
  /// Gives the lease back and removes its file; in a forked child it only closes the descriptor.
  ~PortClaim();

 private:
  PortClaim() = default;

  FileDescriptor lock_;
  std::string path_;
  pid_t holder_ = ::getpid();
};

/// Whether a server could listen on the port now, on all addresses of this machine. Ports in TIME_WAIT count as free.
[[nodiscard]] bool port_is_free(std::uint16_t port) noexcept;

/// First port on which others than root may listen in this network namespace: ip_unprivileged_port_start, 1024 where
/// the kernel does not tell.
[[nodiscard]] std::uint32_t first_port_for_all();

/// Refuses a port that the user's program could not bind: root must not listen there in his place, not for a moment.
[[nodiscard]] Result<void> may_listen(uid_t user, std::uint16_t port, const std::string& host,
                                      std::uint32_t first_for_all = first_port_for_all());

}  // namespace amldist
