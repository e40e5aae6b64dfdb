// Where the ranks of a step find rank 0. That is all that an outer service has to tell: one address. Everything else
// (who is missing, all other addresses, NCCL's id) goes over the connections to rank 0, the same way under every
// launcher.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/environment.hpp"
#include "core/settings.hpp"
#include "os/socket.hpp"
#include "placement/process_identity.hpp"
#include "wireup/key.hpp"

namespace amldist::collective {

class MpiSession;

/// One way to find rank 0.
class RootAddress {
 public:
  virtual ~RootAddress() = default;
  RootAddress() = default;
  RootAddress(const RootAddress&) = delete;
  RootAddress& operator=(const RootAddress&) = delete;

  /// For people: "MASTER_ADDR=10.0.0.1, MASTER_PORT=20017", "PMIx".
  [[nodiscard]] virtual std::string to_string() const = 0;
  /// Rank 0: a listening socket, made known to the others.
  [[nodiscard]] virtual Result<FileDescriptor> publish() = 0;
  /// The others: where rank 0 may listen, the likeliest first. Called again until it is found or the deadline is there.
  [[nodiscard]] virtual Result<std::vector<Endpoint>> look_up(Clock::time_point deadline) = 0;
  /// Rank 0, while it waits for the others: called now and then.
  virtual void progress() {}

  /// Whether all ranks are on one machine if rank 0 is at this address.
  [[nodiscard]] virtual bool is_loopback() const { return false; }
  /// Whether the address can bring a secret: rank 0 gives it before publish(), the others have it after look_up().
  [[nodiscard]] virtual bool carries_secret() const { return false; }
  void carry(const wireup::Key& secret) { carried_ = secret; }
  [[nodiscard]] const std::optional<wireup::Key>& carried() const noexcept { return carried_; }

 private:
  std::optional<wireup::Key> carried_;
};

/// What rank 0 publishes where it can publish one line: "PORT,ADDRESS,ADDRESS,..." and, behind a semicolon, the secret
/// that `root` carries; and what the others make of it, where `root` then carries the secret.
[[nodiscard]] std::string addresses_text(const FileDescriptor& listener, const RootAddress& root);
[[nodiscard]] Result<std::vector<Endpoint>> endpoints_of(const std::string& text, RootAddress& root);

/// MASTER_ADDR and MASTER_PORT. Where rank 0 finds the port taken (by another library of the same program, for example)
/// it takes one of the next few; the others try them in turn.
[[nodiscard]] std::unique_ptr<RootAddress> root_address_at(Endpoint master);

/// PMIx, if libpmix can be opened and its server answers. Errors: unavailable, with the reason.
[[nodiscard]] Result<std::unique_ptr<RootAddress>> root_address_by_pmix(const ProcessIdentity& identity);

/// MPI, which is initialised. The session outlives the address.
[[nodiscard]] std::unique_ptr<RootAddress> root_address_by_mpi(MpiSession& session, const ProcessIdentity& identity);

/// The requested way, or the first that process and environment offer. `mpi` may be nullptr. Errors: unavailable with
/// what is missing, invalid_argument for a MASTER_PORT that is no port.
[[nodiscard]] Result<std::unique_ptr<RootAddress>> choose_root_address(const EnvironmentReader& environment,
                                                                       Bootstrap requested,
                                                                       const ProcessIdentity& identity,
                                                                       MpiSession* mpi);

/// How many ports from MASTER_PORT on rank 0 may take.
inline constexpr std::uint16_t root_ports = 8;

}  // namespace amldist::collective
