#include "world/bootstrap/sealed_bytes.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "base/net/socket.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"
#include "world/wireup/limits.hpp"

namespace amldist::world {
namespace {

constexpr int all_seals = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

Error system_error(std::string_view what) {
  return {Errc::unavailable, text::concat({what, ": ", std::strerror(errno)})};
}

/// Room for one descriptor beside a message.
struct Ancillary {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> bytes;
};

FileDescriptor descriptor_in(msghdr& message) {
  const cmsghdr* const head = CMSG_FIRSTHDR(&message);
  const bool is_file = head != nullptr && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS &&
                       head->cmsg_len == CMSG_LEN(sizeof(int));
  int descriptor = -1;
  if (is_file) std::memcpy(&descriptor, CMSG_DATA(head), sizeof descriptor);
  return FileDescriptor(descriptor);
}

}  // namespace

Result<SealedBytes> SealedBytes::create(std::string_view content) {
  FileDescriptor file(::memfd_create("amldist-ranks", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file || !write_all(file.get(), content)) return system_error("cannot create shared memory for the rank table");
  if (::fcntl(file.get(), F_ADD_SEALS, all_seals) != 0) return system_error("cannot seal the rank table");
  return map(std::move(file));
}

Result<SealedBytes> SealedBytes::open(FileDescriptor file) {
  const int seals = ::fcntl(file.get(), F_GET_SEALS);
  if (seals < 0 || (seals & all_seals) != all_seals) {
    return Error{Errc::peer, "the memory of the rank table is not sealed"};
  }
  return map(std::move(file));
}

Result<SealedBytes> SealedBytes::map(FileDescriptor file) {
  struct stat status = {};
  if (::fstat(file.get(), &status) != 0) return system_error("the rank table has no size");
  const auto size = static_cast<std::size_t>(status.st_size);
  void* const where = ::mmap(nullptr, size, PROT_READ, MAP_SHARED, file.get(), 0);
  if (where == MAP_FAILED) return system_error("cannot map the rank table");
  SealedBytes out;
  out.file_ = std::move(file);
  out.bytes_ = {static_cast<const char*>(where), size};
  out.owner_ =
      std::shared_ptr<const void>(where, [size, where](const void*) { static_cast<void>(::munmap(where, size)); });
  return out;
}

bool send_with_file(const FileDescriptor& socket, std::string_view frame, const FileDescriptor& file) {
  Ancillary ancillary = {};
  iovec part = {const_cast<char*>(frame.data()), frame.size()};  // NOLINT: sendmsg only reads it
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = ancillary.bytes.data();
  message.msg_controllen = ancillary.bytes.size();
  cmsghdr* const head = CMSG_FIRSTHDR(&message);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof(int));
  const int descriptor = file.get();
  std::memcpy(CMSG_DATA(head), &descriptor, sizeof descriptor);
  return ::sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(frame.size());
}

Result<FrameWithFile> read_frame_with_file(const FileDescriptor& socket, Clock::time_point deadline) {
  // The descriptor comes with the first byte of its frame, so peeking at that byte returns a copy of it.
  for (;;) {
    char first = 0;
    Ancillary ancillary = {};
    iovec part = {&first, 1};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = ancillary.bytes.data();
    message.msg_controllen = ancillary.bytes.size();
    const ssize_t got = ::recvmsg(socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | MSG_PEEK);
    if (got > 0) {
      FrameWithFile out;
      out.file = descriptor_in(message);
      auto frame = world::read_frame(socket, world::limits.frame_bytes, deadline);
      if (!frame) return frame.error();
      out.frame = std::move(*frame);
      return out;
    }
    if (got == 0) return Error{Errc::unavailable, "the connection was closed"};
    if (errno != EAGAIN && errno != EINTR) return system_error("the connection broke");
    if (!wait_until_ready(socket, Readiness::read, deadline))
      return Error{Errc::timeout, "the peer did not answer in time"};
  }
}

}  // namespace amldist::world
