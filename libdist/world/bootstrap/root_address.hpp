// Where the ranks of a step find rank 0. One address is all that an outside service must provide. Everything else (who
// is missing, all other addresses, NCCL's id) goes over the connections to rank 0, in the same way under every
// launcher.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/net/socket.hpp"
#include "base/text/environment.hpp"
#include "launch/placement/process_identity.hpp"
#include "world/settings.hpp"
#include "world/wireup/key.hpp"

namespace amldist::world {

class MpiSession;

/// A way to find rank 0.
class RootAddress {
 public:
  virtual ~RootAddress() = default;
  /// `ports` on which this process may listen; empty: any.
  explicit RootAddress(PortRanges ports = {}) : ports_(std::move(ports)) {}
  RootAddress(const RootAddress&) = delete;
  RootAddress& operator=(const RootAddress&) = delete;

  /// For people: "MASTER_ADDR=10.0.0.1, MASTER_PORT=20017", "PMIx".
  [[nodiscard]] virtual std::string to_string() const = 0;
  /// On rank 0: a listening socket, published to the others.
  [[nodiscard]] virtual Result<FileDescriptor> publish() = 0;
  /// On the others: where rank 0 may listen, the most likely first. Called repeatedly until rank 0 is found or the
  /// deadline passes.
  [[nodiscard]] virtual Result<std::vector<Endpoint>> look_up(Clock::time_point deadline) = 0;
  /// Called when no process answered at the addresses of look_up(): whether rank 0 has published another address since,
  /// because it was restarted. The address may bring another secret, so the caller then joins from the beginning.
  [[nodiscard]] bool ask_again(Clock::time_point deadline) {
    has_moved_ = is_replaced(deadline);
    return has_moved_;
  }
  /// The last answer of ask_again() in this attempt to join.
  [[nodiscard]] bool has_moved() const noexcept { return has_moved_; }
  /// The same, at the attempt's end.
  [[nodiscard]] bool take_move() noexcept { return std::exchange(has_moved_, false); }
  /// The same in all processes of the step, and different in every other step of the user on this machine. `port`: of
  /// the first place where rank 0 may listen.
  [[nodiscard]] virtual std::string step_name(std::uint16_t port) const {
    return to_string() + " " + std::to_string(port);
  }
  /// On rank 0, while it waits for the others: called now and then.
  virtual void progress() {}
  /// A socket for all later connections of other ranks: it listens on the interface by which they reach this process if
  /// that is known, else on all.
  [[nodiscard]] virtual Result<FileDescriptor> listen() { return listen_within(ports_); }
  /// On rank 0, when the world is complete: the listener, if another world might choose the same port. While this world
  /// lives, it keeps others from the port and tells processes that connect that they are too late.
  [[nodiscard]] virtual FileDescriptor take_place() { return {}; }

  /// Whether all ranks are on one machine if rank 0 has this address.
  [[nodiscard]] virtual bool is_loopback() const { return false; }
  /// Whether the address can bring a secret: rank 0 sets it before publish(), the others have it after look_up().
  [[nodiscard]] virtual bool carries_secret() const { return false; }
  void carry(const world::Key& secret) { carried_ = secret; }
  [[nodiscard]] const std::optional<world::Key>& carried() const noexcept { return carried_; }

 protected:
  [[nodiscard]] const PortRanges& ports() const noexcept { return ports_; }
  /// Whether rank 0 has published another address than the one that look_up() found; look_up() then returns the new
  /// one.
  [[nodiscard]] virtual bool is_replaced(Clock::time_point /*deadline*/) { return false; }

 private:
  PortRanges ports_;
  std::optional<world::Key> carried_;
  bool has_moved_ = false;
};

/// Ends an attempt to join when ask_again() returned true. Not shown to users.
[[nodiscard]] inline Error another_rank_0() { return {Errc::peer, "rank 0 has been started again"}; }

/// What rank 0 publishes if it can publish one line: "PORT,ADDRESS,ADDRESS,..." and, after a semicolon, the secret that
/// `root` carries; and the reading of it by the others, where `root` then carries the secret.
[[nodiscard]] std::string addresses_text(const FileDescriptor& listener, const RootAddress& root);
[[nodiscard]] Result<std::vector<Endpoint>> endpoints_of(const std::string& text, RootAddress& root);

/// Where rank 0 listens: a host, and one port that all ranks know.
struct RootEndpoint {
  Endpoint endpoint;
  std::string rule;  ///< for people: how the port was found, and what changes it
};

/// A fixed place. If its port is taken, rank 0 waits for it for a moment and then gives up: it uses no other port.
[[nodiscard]] std::unique_ptr<RootAddress> root_address_at(RootEndpoint place, PortRanges ports = {});

/// PMIx, if libpmix can be opened and its server answers. Errors: unavailable, with the reason.
[[nodiscard]] Result<std::unique_ptr<RootAddress>> root_address_by_pmix(const launch::ProcessIdentity& identity,
                                                                        PortRanges ports);

/// MPI, which must be initialised. The session must outlive the address.
[[nodiscard]] std::unique_ptr<RootAddress> root_address_by_mpi(MpiSession& session,
                                                               const launch::ProcessIdentity& identity,
                                                               PortRanges ports);

/// The way that is configured, or the first one that process and environment offer. `mpi` may be nullptr. Errors:
/// unavailable with what is missing, invalid_argument for a MASTER_PORT that is not a port.
[[nodiscard]] Result<std::unique_ptr<RootAddress>> choose_root_address(const EnvironmentReader& environment,
                                                                       const Settings& settings,
                                                                       const launch::ProcessIdentity& identity,
                                                                       MpiSession* mpi);

}  // namespace amldist::world
