// Where a name leads on this node: a name is handed to frameworks only if it leads where they will listen or connect.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
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

/// Look-ups of one step: each name once, and no other after a name service that did not answer in time. Copies share
/// what they know; not safe to call from several threads.
class NameTargets {
 public:
  explicit NameTargets(std::function<NameTarget(const std::string& name)> look_up);
  [[nodiscard]] NameTarget operator()(const std::string& name) const;

 private:
  std::function<NameTarget(const std::string& name)> look_up_;
  std::shared_ptr<std::map<std::string, NameTarget>> known_;
};

}  // namespace amldist::launch
