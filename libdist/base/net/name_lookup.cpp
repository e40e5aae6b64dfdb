#include "base/net/name_lookup.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "base/text/text.hpp"

namespace amldist {
namespace {

using text::concat;

/// Where the thread leaves its answer for the waiting thread; whichever of the two finishes last frees it.
struct Answer {
  std::mutex mutex;
  std::condition_variable came;
  std::optional<Result<std::vector<IpAddress>>> addresses;
};

/// Starts a thread to which no signal of the program is delivered.
void start_detached(std::function<void()> work) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(std::move(work)).detach();
  } catch (...) {
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

/// Addresses of one family.
IpAddress address_in(const addrinfo& info) {
  if (info.ai_family == AF_INET) {
    sockaddr_in four = {};
    std::memcpy(&four, info.ai_addr, std::min<std::size_t>(sizeof four, info.ai_addrlen));
    return Ipv4{ntohl(four.sin_addr.s_addr)};
  }
  sockaddr_in6 six = {};
  std::memcpy(&six, info.ai_addr, std::min<std::size_t>(sizeof six, info.ai_addrlen));
  IpAddress out;
  std::memcpy(out.bytes.data(), &six.sin6_addr, out.bytes.size());
  return out;
}

}  // namespace

Result<std::vector<IpAddress>> ask_resolver(const std::string& host) {
  addrinfo wanted = {};
  wanted.ai_family = AF_UNSPEC;
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int status = ::getaddrinfo(host.c_str(), nullptr, &wanted, &found); status != 0) {
    return Error{Errc::unavailable,
                 concat({"the host name ", text::quote(host), " has no address here: ", ::gai_strerror(status)})};
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  std::vector<IpAddress> addresses;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
      if (each->ai_family == family) addresses.push_back(address_in(*each));
    }
  }
  return addresses;
}

Result<std::vector<IpAddress>> addresses_of(const std::string& host, Clock::time_point deadline,
                                            const Resolver& resolver) {
  if (const auto literal = IpAddress::parse(host)) return std::vector<IpAddress>{*literal};
  const auto answer = std::make_shared<Answer>();
  try {
    start_detached([answer, host, resolver] {
      auto addresses = resolver(host);
      const std::lock_guard lock(answer->mutex);
      answer->addresses = std::move(addresses);
      answer->came.notify_all();
    });
  } catch (const std::system_error& problem) {
    return Error{Errc::limit, concat({"cannot start a thread to look ", text::quote(host), " up: ", problem.what()})};
  }
  std::unique_lock lock(answer->mutex);
  if (answer->came.wait_until(lock, deadline, [&] { return answer->addresses.has_value(); })) return *answer->addresses;
  return Error{Errc::timeout, concat({"the name server did not answer for the host name ", text::quote(host)})};
}

}  // namespace amldist
