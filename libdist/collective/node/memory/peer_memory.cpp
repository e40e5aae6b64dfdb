#include "collective/node/memory/peer_memory.hpp"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/text/text.hpp"

namespace amldist::collective {
namespace {

/// A signal is handled between two of them.
constexpr std::size_t longest_transfer = 64UL << 20;

Error why_refused(int problem) {
  // EPERM: a program may forbid it after the start, when it was tried (PR_SET_DUMPABLE).
  if (problem == EFAULT || problem == EPERM) return {Errc::invalid_argument, std::strerror(problem)};
  if (problem == ESRCH) return {Errc::peer, "its process has ended"};
  return {Errc::peer, text::concat({"its memory is not accessible: ", std::strerror(problem)})};
}

}  // namespace

void write_to_each_page(std::byte* data, std::size_t bytes) {
  constexpr std::size_t smallest_page = 4096;
  const auto touch_one = [](std::byte* at) {
    auto* const byte = reinterpret_cast<volatile unsigned char*>(at);
    *byte = *byte;
  };
  for (std::size_t done = 0; done < bytes; done += smallest_page) touch_one(data + done);
  if (bytes != 0) touch_one(data + bytes - 1);
}

Error bad_buffer_of(int rank, std::string_view host, std::size_t bytes, std::string_view why) {
  return {
      Errc::invalid_argument,
      text::concat({"rank ", std::to_string(rank), " on ", host, " gave a buffer to send of which ",
                    std::to_string(bytes), " bytes are not its memory, or the kernel shows them to no other process (",
                    why, "): for the latter set AMLDIST_SINGLE_COPY=off"})};
}

std::string PeerMemory::Sample::address() const {
  const auto where = reinterpret_cast<std::uintptr_t>(&value_);
  return text::concat({std::to_string(::getpid()), ":", std::to_string(where), ":", std::to_string(value_)});
}

bool PeerMemory::open(std::size_t rank, std::string_view sample_address) {
  const auto words = text::split(sample_address, ':');
  if (words.size() != 3) return false;
  const auto process = text::to_number(words[0], INT32_MAX);
  const auto where = text::to_number(words[1], UINT64_MAX);
  const auto value = text::to_number(words[2], UINT64_MAX);
  if (!process || *process == 0 || !where || !value) return false;
  processes_[rank] = static_cast<int>(*process);
  std::uint64_t found = 0;
  return read(rank, &found, *where, sizeof found) && found == *value;
}

Result<void> PeerMemory::read(std::size_t rank, void* to, std::uint64_t from, std::size_t bytes) const {
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t wanted = std::min(longest_transfer, bytes - done);
    const ::iovec here = {static_cast<std::byte*>(to) + done, wanted};
    const ::iovec there = {reinterpret_cast<void*>(from + done), wanted};  // NOLINT(performance-no-int-to-ptr)
    const ::ssize_t moved = ::process_vm_readv(processes_[rank], &here, 1, &there, 1, 0);
    if (moved < 0) return why_refused(errno);
    if (moved == 0) return why_refused(EFAULT);
    done += static_cast<std::size_t>(moved);
  }
  return {};
}

}  // namespace amldist::collective
