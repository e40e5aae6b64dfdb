// Where a name leads on this node: a name is handed to frameworks only if it leads where they will listen or connect.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "base/net/ip_address.hpp"
#include "base/os/answer_as_user.hpp"
#include "base/text/result.hpp"

namespace amldist::launch {

/// Where a name or an address leads.
struct NameTarget {
  enum class Where {
    here,       ///< to an address of this node, by which others reach it
    loopback,   ///< every node to itself (Debian's 127.0.1.1)
    elsewhere,  ///< to another machine
    nowhere,    ///< nobody resolves it
    unknown,    ///< the name service did not answer in time
  };
  Where where = Where::unknown;
  std::string address = {};  ///< the first; empty: nowhere or unknown

  friend bool operator==(const NameTarget&, const NameTarget&) = default;
};

/// What addresses mean on a node with `own` addresses. Pure.
[[nodiscard]] NameTarget target_of(const Result<std::vector<IpAddress>>& addresses, std::span<const IpAddress> own);

/// The same for a name: from /etc/hosts, else from the name service, which a process with the user's rights asks and
/// which may take `limit`.
[[nodiscard]] NameTarget look_up_target(const std::string& name, std::span<const IpAddress> own, UserRights rights,
                                        std::chrono::milliseconds limit);

}  // namespace amldist::launch
