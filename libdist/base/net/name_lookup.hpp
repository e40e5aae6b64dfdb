// Looks up host names with a deadline: a name server may not answer for minutes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/net/ip_address.hpp"
#include "base/text/result.hpp"
#include "base/time/clock.hpp"

namespace amldist {

/// Looks up a name without a time limit. Errors: unavailable.
using Resolver = std::function<Result<std::vector<IpAddress>>(const std::string& host)>;
[[nodiscard]] Result<std::vector<IpAddress>> ask_resolver(const std::string& host);

/// The addresses of `host` (a name or an address), IPv4 first. A thread looks the name up; it is left running if it has
/// not ended by `deadline`. Errors: unavailable, timeout.
[[nodiscard]] Result<std::vector<IpAddress>> addresses_of(const std::string& host, Clock::time_point deadline,
                                                          const Resolver& resolver = ask_resolver);

}  // namespace amldist
