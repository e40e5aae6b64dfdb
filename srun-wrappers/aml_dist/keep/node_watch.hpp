// Whether machines answer, long before Slurm knows. No program listens to these questions: the kernel of a living
// machine refuses a connection to an unused port, and a dead one or one behind a cut cable says nothing.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/net/ip_address.hpp"
#include "base/time/clock.hpp"

namespace amldist::keep {

struct Machine {
  IpAddress address;
  std::uint16_t slurmd = 0;  ///< its port
};

/// By the names of their nodes.
using Machines = std::map<std::string, Machine>;

enum class Answer { accepted, refused, silent };

/// Connects to all machines, to this port or to that of slurmd: to so many at once as a process has descriptors for.
/// `limit`: for the answer of each, so that one that is silent takes no time from those that are asked after it.
[[nodiscard]] std::map<std::string, Answer> knock(const Machines& machines, std::chrono::milliseconds limit,
                                                  std::optional<std::uint16_t> port = {});

/// The remote addresses of a process's TCP connections: srun has one for each node's output.
[[nodiscard]] std::set<std::string> connected_addresses(pid_t process);
/// Reads /proc/net/tcp: established connections by the inodes of their sockets.
[[nodiscard]] std::set<std::string> parse_connections(std::string_view table, const std::set<std::uint64_t>& inodes);

/// Which machines have been silent for too long. One that has never answered, behind a firewall, is not watched.
class SilenceWatch {
 public:
  explicit SilenceWatch(Machines machines) : machines_(std::move(machines)) {}

  /// Asks all; the machines that have been silent for `patience` since their first silence.
  [[nodiscard]] std::vector<std::string> look();

  static constexpr std::chrono::milliseconds patience{6000};

 private:
  Machines machines_;
  std::set<std::string> heard_;
  std::map<std::string, Clock::time_point> silent_since_;
};

}  // namespace amldist::keep
