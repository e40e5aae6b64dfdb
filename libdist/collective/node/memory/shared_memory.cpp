#include "collective/node/memory/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <string_view>

#include "base/text/text.hpp"

namespace amldist::collective {

using text::concat;

namespace {

constexpr int fixed_size = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

/// Where another process has its memory. The inode tells it from memory with the same numbers in another PID namespace.
struct MemoryAddress {
  std::uint64_t process;
  std::uint64_t file;
  std::uint64_t inode;
};

std::optional<MemoryAddress> parse_address(std::string_view address) {
  const auto words = text::split(address, ':');
  if (words.size() != 3) return std::nullopt;
  const auto process = text::to_number(words[0], INT32_MAX);
  const auto file = text::to_number(words[1], INT32_MAX);
  const auto inode = text::to_number(words[2], UINT64_MAX);
  if (!process || !file || !inode) return std::nullopt;
  return MemoryAddress{*process, *file, *inode};
}

}  // namespace

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) static_cast<void>(::munmap(data_, bytes_));
}

Result<void> SharedMemory::map(std::size_t bytes) {
  // After mlockall(MCL_FUTURE) memory is filled when it is mapped, unless it is not accessible yet; most of this is
  // never used.
  void* const where = ::mmap(nullptr, bytes, PROT_NONE, MAP_SHARED | MAP_NORESERVE, file_.get(), 0);
  const bool is_mapped =
      where != MAP_FAILED && ::munlock(where, bytes) == 0 && ::mprotect(where, bytes, PROT_READ | PROT_WRITE) == 0;
  if (!is_mapped) {
    const int problem = errno;
    if (where != MAP_FAILED) static_cast<void>(::munmap(where, bytes));
    return Error{Errc::limit, concat({"not enough address space for ", std::to_string(bytes),
                                      " bytes of shared memory: ", std::strerror(problem), " (see ulimit -v)"})};
  }
  data_ = static_cast<std::byte*>(where);
  bytes_ = bytes;
  static_cast<void>(::madvise(where, bytes, MADV_DONTDUMP));
  static_cast<void>(::madvise(where, bytes, MADV_HUGEPAGE));
  return {};
}

Result<SharedMemory> SharedMemory::create(std::size_t bytes) {
  // Beyond it, ftruncate() raises SIGXFSZ, which ends the program.
  if (struct rlimit longest = {}; ::getrlimit(RLIMIT_FSIZE, &longest) == 0 && bytes > longest.rlim_cur) {
    return Error{Errc::limit, concat({"shared memory of ", std::to_string(bytes),
                                      " bytes is longer than a file may be (see ulimit -f)"})};
  }
  SharedMemory memory;
  memory.file_ = FileDescriptor(::memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!memory.file_ || ::ftruncate(memory.file_.get(), static_cast<off_t>(bytes)) != 0 ||
      ::fcntl(memory.file_.get(), F_ADD_SEALS, fixed_size) != 0) {
    return Error{Errc::unavailable,
                 concat({"cannot create shared memory of ", std::to_string(bytes), " bytes: ", std::strerror(errno)})};
  }
  if (auto status = memory.map(bytes); !status) return status.error();
  return memory;
}

std::uint64_t SharedMemory::inode() const noexcept {
  struct stat status = {};
  static_cast<void>(::fstat(file_.get(), &status));
  return status.st_ino;
}

std::string SharedMemory::address() const {
  return concat({std::to_string(::getpid()), ":", std::to_string(file_.get()), ":", std::to_string(inode())});
}

Result<SharedMemory> SharedMemory::open(const std::string& address, std::size_t bytes) {
  const auto place = parse_address(address);
  if (!place) return Error{Errc::mismatch, concat({text::quote(address), " is not the address of shared memory"})};
  const std::string path = concat({"/proc/", std::to_string(place->process), "/fd/", std::to_string(place->file)});
  // O_PATH does not really open anything yet: a device or a pipe would notice an open().
  const FileDescriptor found(::open(path.c_str(), O_PATH | O_CLOEXEC));
  if (!found) {
    return Error{Errc::unavailable,
                 concat({"the shared memory at ", path, " cannot be opened: ", std::strerror(errno)})};
  }
  const auto refuse = [&](std::string_view why) {
    return Error{Errc::mismatch, concat({path, " is not the shared memory of the other rank: ", why})};
  };
  struct stat status = {};
  if (::fstat(found.get(), &status) != 0 || !S_ISREG(status.st_mode)) return refuse("it is not a file in memory");
  if (status.st_uid != ::geteuid()) return refuse("it belongs to another user");
  if (status.st_ino != place->inode) return refuse("the other rank is in another PID namespace");
  SharedMemory memory;
  const std::string same = concat({"/proc/self/fd/", std::to_string(found.get())});
  memory.file_ = FileDescriptor(::open(same.c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (!memory.file_) return refuse(std::strerror(errno));
  // Only a memfd has these seals. Without them its owner could shrink it, and an access would raise SIGBUS.
  const int seals = ::fcntl(memory.file_.get(), F_GET_SEALS);
  if (seals < 0 || (seals & fixed_size) != fixed_size) return refuse("it is not a memfd of sealed size");
  if (status.st_size != static_cast<off_t>(bytes)) return refuse("its size differs");
  if (auto status = memory.map(bytes); !status) return status.error();
  return memory;
}

}  // namespace amldist::collective
