#include "launch/rendezvous/port_claim.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>
#include <memory>
#include <string_view>

#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"

namespace amldist::launch {
namespace {

using text::concat;

/// Listens briefly. Servers set SO_REUSEADDR (TCPStore, gRPC), so they can use a port in TIME_WAIT.
bool can_listen(int family, const sockaddr* address, socklen_t length) noexcept {
  const FileDescriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket) return true;  // this family is not available, so no program uses the port in it
  constexpr int yes = 1;
  static_cast<void>(::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes));
  if (family == AF_INET6) static_cast<void>(::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes));
  if (::bind(socket.get(), address, length) != 0) return errno != EADDRINUSE;
  return ::listen(socket.get(), 1) == 0 || errno != EADDRINUSE;
}

/// The lease folder, created on first use. Root owns its parents, so nobody else can have created it.
bool make_folder(const std::string& folder) {
  const auto slash = folder.rfind('/');
  if (slash != std::string::npos && slash > 0) static_cast<void>(::mkdir(folder.substr(0, slash).c_str(), 0755));
  return ::mkdir(folder.c_str(), 0700) == 0 || errno == EEXIST;
}

/// Number of this process's network namespace; 0 if unknown.
unsigned long network_namespace() noexcept {
  struct stat status = {};
  return ::stat("/proc/self/ns/net", &status) == 0 ? static_cast<unsigned long>(status.st_ino) : 0;
}

enum class Locked { ours, others, impossible };

/// Opens and locks `path`. Retries if the previous holder removed the file in between.
Locked lock_file(const std::string& path, FileDescriptor& lock) {
  constexpr int attempts = 10;
  for (int attempt = 0; attempt < attempts; ++attempt) {
    FileDescriptor file(::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file) return Locked::impossible;
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return errno == EWOULDBLOCK ? Locked::others : Locked::impossible;
    struct stat held = {};
    struct stat named = {};
    const bool same =
        ::fstat(file.get(), &held) == 0 && ::stat(path.c_str(), &named) == 0 && held.st_ino == named.st_ino;
    if (!same) continue;
    lock = std::move(file);
    return Locked::ours;
  }
  return Locked::impossible;
}

/// A step that looks for stale leases holds the lock of each for some microseconds.
Locked lock_patiently(const std::string& path, FileDescriptor& lock) {
  constexpr int attempts = 20;
  constexpr timespec pause = {0, 5'000'000};
  Locked locked = lock_file(path, lock);
  for (int attempt = 1; locked == Locked::others && attempt < attempts; ++attempt) {
    static_cast<void>(::nanosleep(&pause, nullptr));
    locked = lock_file(path, lock);
  }
  return locked;
}

Error taken(std::uint16_t port, const std::string& host, std::string_view by) {
  return {Errc::unavailable, concat({"port ", std::to_string(port), " on ", host, " is taken by ", by,
                                     ": give another with master_port=N, or submit again"})};
}

}  // namespace

void remove_stale_leases(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), &::closedir);
  while (const dirent* const entry = open ? ::readdir(open.get()) : nullptr) {
    const std::string path = concat({folder, "/", entry->d_name});
    FileDescriptor lock;
    if (entry->d_name[0] != '.' && lock_file(path, lock) == Locked::ours) static_cast<void>(::unlink(path.c_str()));
  }
}

bool port_is_free(std::uint16_t port) noexcept {
  sockaddr_in four = {};
  four.sin_family = AF_INET;
  four.sin_port = htons(port);
  sockaddr_in6 six = {};
  six.sin6_family = AF_INET6;
  six.sin6_port = htons(port);
  return can_listen(AF_INET, reinterpret_cast<const sockaddr*>(&four), sizeof four) &&
         can_listen(AF_INET6, reinterpret_cast<const sockaddr*>(&six), sizeof six);
}

std::uint32_t first_port_for_all() {
  constexpr std::uint32_t usual = 1024;
  const auto number = text::to_number(first_line_of("/proc/sys/net/ipv4/ip_unprivileged_port_start"), 65536);
  return number ? static_cast<std::uint32_t>(*number) : usual;
}

Result<void> may_listen(uid_t user, std::uint16_t port, const std::string& host, std::uint32_t first_for_all) {
  if (user == 0 || port >= first_for_all) return {};
  return Error{Errc::invalid_argument,
               concat({"port ", std::to_string(port), " on ", host, " needs root, as all ports below ",
                       std::to_string(first_for_all), ": give another with master_port=N"})};
}

Result<PortClaim> PortClaim::take(std::uint16_t port, const std::string& host, const std::string& folder) {
  PortClaim claim;
  if (make_folder(folder)) {
    const std::string path = concat({folder, "/", std::to_string(port), ".", std::to_string(network_namespace())});
    const Locked locked = lock_patiently(path, claim.lock_);
    if (locked == Locked::others) return taken(port, host, "another step that uses aml-dist");
    if (locked == Locked::ours) claim.path_ = path;
  }
  if (!port_is_free(port)) return taken(port, host, "another program");
  return claim;
}

PortClaim::~PortClaim() {
  if (lock_ && !path_.empty() && holder_ == ::getpid()) ::unlink(path_.c_str());
}

}  // namespace amldist::launch
