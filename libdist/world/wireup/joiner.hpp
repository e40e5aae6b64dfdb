// The joining side of the star: finds the accepting side among candidates and introduces itself.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/net/socket.hpp"
#include "base/os/file_descriptor.hpp"
#include "base/text/result.hpp"
#include "base/time/clock.hpp"
#include "world/wireup/join_request.hpp"

namespace amldist::world {

/// Where the accepting side may be.
struct Destination {
  /// Candidates, the most likely first; called again before every attempt. An error ends the search.
  std::function<Result<std::vector<Endpoint>>(Clock::time_point deadline)> endpoints;
  std::string name;  ///< the beginning of the sentence that it did not answer
  std::string hint;  ///< the end of that sentence
};

/// A connection to the accepting side, which has accepted this process.
struct Joined {
  FileDescriptor link;
  Endpoint where;
};

/// Connects, proves the key and introduces itself, repeatedly until the deadline. `join_request`: a whole frame.
/// Errors: timeout; the accepting side's reason for refusing this process; errors of the destination.
[[nodiscard]] Result<Joined> join(const Destination& destination, const std::string& join_request,
                                  const GroupKey& group, Clock::time_point deadline);

/// Proves the key over a connection, and sends the join request to a host that has proven it too. False if the host has
/// not.
[[nodiscard]] bool prove(const FileDescriptor& connection, const std::string& join_request, const GroupKey& group,
                         Clock::time_point deadline);
/// The same, and judges the answer. False if it is not the accepting side of this group. Errors: why it refuses this
/// process.
[[nodiscard]] Result<bool> introduce(const FileDescriptor& connection, const std::string& join_request,
                                     const GroupKey& group, Clock::time_point deadline);

}  // namespace amldist::world
