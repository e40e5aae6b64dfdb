// Addresses of host names, by a deadline: a name server may take minutes to say nothing.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/net/ip_address.hpp"
#include "base/text/result.hpp"
#include "base/time/clock.hpp"

namespace amldist {

/// Looks a name up, for as long as that takes. Errors: unavailable.
using Resolver = std::function<Result<std::vector<IpAddress>>(const std::string& host)>;
[[nodiscard]] Result<std::vector<IpAddress>> ask_resolver(const std::string& host);

/// The addresses of `host`, those of IPv4 first; it may be an address itself. A name is looked up by a thread, which is
/// left behind if it has not ended by `deadline`. Errors: unavailable, timeout.
[[nodiscard]] Result<std::vector<IpAddress>> addresses_of(const std::string& host, Clock::time_point deadline,
                                                          const Resolver& resolver = ask_resolver);

}  // namespace amldist
