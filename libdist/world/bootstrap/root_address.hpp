// Where the ranks of a step find rank 0. That is all that an outer service has to tell: one address. Everything else
// (who is missing, all other addresses, NCCL's id) goes over the connections to rank 0, the same way under every
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

/// One way to find rank 0.
class RootAddress {
 public:
  virtual ~RootAddress() = default;
  /// `ports`: on which this process listens; empty: any.
  explicit RootAddress(PortRanges ports = {}) : ports_(std::move(ports)) {}
  RootAddress(const RootAddress&) = delete;
  RootAddress& operator=(const RootAddress&) = delete;

  /// For people: "MASTER_ADDR=10.0.0.1, MASTER_PORT=20017", "PMIx".
  [[nodiscard]] virtual std::string to_string() const = 0;
  /// Rank 0: a listening socket, made known to the others.
  [[nodiscard]] virtual Result<FileDescriptor> publish() = 0;
  /// The others: where rank 0 may listen, the likeliest first. Called again until it is found or the deadline is there.
  [[nodiscard]] virtual Result<std::vector<Endpoint>> look_up(Clock::time_point deadline) = 0;
  /// Asked when nobody answered where look_up() said: whether rank 0 has given another address since, because it was
  /// started again. The address may bring another secret, so whoever hears of it joins from the beginning.
  [[nodiscard]] bool ask_again(Clock::time_point deadline) {
    has_moved_ = is_replaced(deadline);
    return has_moved_;
  }
  /// What ask_again() said last, in this attempt to join.
  [[nodiscard]] bool has_moved() const noexcept { return has_moved_; }
  /// The same, at the attempt's end.
  [[nodiscard]] bool take_move() noexcept { return std::exchange(has_moved_, false); }
  /// The same in all processes of the step, and another one in every other step of the user on this machine. `port`: of
  /// the first place where rank 0 may listen.
  [[nodiscard]] virtual std::string step_name(std::uint16_t port) const {
    return to_string() + " " + std::to_string(port);
  }
  /// Rank 0, while it waits for the others: called now and then.
  virtual void progress() {}
  /// For all that other ranks connect to later: a socket that listens on the interface by which they reach this
  /// process, where that is known, and else on all.
  [[nodiscard]] virtual Result<FileDescriptor> listen() { return listen_within(ports_); }
  /// Rank 0, once the world has come together: the listener of a meeting place that another world could choose, too.
  /// While this one lives, none other that was given the same port comes about beside it, and who comes is told so.
  [[nodiscard]] virtual FileDescriptor take_place() { return {}; }

  /// Whether all ranks are on one machine if rank 0 is at this address.
  [[nodiscard]] virtual bool is_loopback() const { return false; }
  /// Whether the address can bring a secret: rank 0 gives it before publish(), the others have it after look_up().
  [[nodiscard]] virtual bool carries_secret() const { return false; }
  void carry(const world::Key& secret) { carried_ = secret; }
  [[nodiscard]] const std::optional<world::Key>& carried() const noexcept { return carried_; }

 protected:
  [[nodiscard]] const PortRanges& ports() const noexcept { return ports_; }
  /// Whether another address stands where look_up() found one, which finds the other one from then on.
  [[nodiscard]] virtual bool is_replaced(Clock::time_point /*deadline*/) { return false; }

 private:
  PortRanges ports_;
  std::optional<world::Key> carried_;
  bool has_moved_ = false;
};

/// Ends an attempt to join, where ask_again() said yes. Nobody reads it.
[[nodiscard]] inline Error another_rank_0() { return {Errc::peer, "rank 0 has been started again"}; }

/// What rank 0 publishes where it can publish one line: "PORT,ADDRESS,ADDRESS,..." and, behind a semicolon, the secret
/// that `root` carries; and what the others make of it, where `root` then carries the secret.
[[nodiscard]] std::string addresses_text(const FileDescriptor& listener, const RootAddress& root);
[[nodiscard]] Result<std::vector<Endpoint>> endpoints_of(const std::string& text, RootAddress& root);

/// Where rank 0 is met: a host, and the one port that all ranks know.
struct RootEndpoint {
  Endpoint endpoint;
  std::string rule;  ///< for people: how the port was found, and what changes it
};

/// A fixed place. If its port is taken, rank 0 waits for it for a moment and then refuses: it takes no other one.
[[nodiscard]] std::unique_ptr<RootAddress> root_address_at(RootEndpoint place, PortRanges ports = {});

/// PMIx, if libpmix can be opened and its server answers. Errors: unavailable, with the reason.
[[nodiscard]] Result<std::unique_ptr<RootAddress>> root_address_by_pmix(const launch::ProcessIdentity& identity,
                                                                        PortRanges ports);

/// MPI, which is initialised. The session outlives the address.
[[nodiscard]] std::unique_ptr<RootAddress> root_address_by_mpi(MpiSession& session,
                                                               const launch::ProcessIdentity& identity,
                                                               PortRanges ports);

/// The way that is set, or the first that process and environment offer. `mpi` may be nullptr. Errors: unavailable with
/// what is missing, invalid_argument for a MASTER_PORT that is not a port.
[[nodiscard]] Result<std::unique_ptr<RootAddress>> choose_root_address(const EnvironmentReader& environment,
                                                                       const Settings& settings,
                                                                       const launch::ProcessIdentity& identity,
                                                                       MpiSession* mpi);

}  // namespace amldist::world
