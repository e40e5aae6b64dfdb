#include "collective/node/shared_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "core/text.hpp"

namespace amldist::collective {

using text::concat;

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) static_cast<void>(::munmap(data_, bytes_));
}

Result<void> SharedMemory::map(std::size_t bytes) {
  void* const where = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_.get(), 0);
  if (where == MAP_FAILED) {
    return Error{Errc::limit, concat({"not enough address space for ", std::to_string(bytes),
                                      " bytes of shared memory: ", std::strerror(errno), " (see ulimit -v)"})};
  }
  data_ = static_cast<std::byte*>(where);
  bytes_ = bytes;
  static_cast<void>(::madvise(where, bytes, MADV_DONTDUMP));
  static_cast<void>(::madvise(where, bytes, MADV_HUGEPAGE));
  return {};
}

Result<SharedMemory> SharedMemory::create(std::size_t bytes) {
  SharedMemory memory;
  memory.file_ = FileDescriptor(::memfd_create("amldist", MFD_CLOEXEC));
  if (!memory.file_ || ::ftruncate(memory.file_.get(), static_cast<off_t>(bytes)) != 0) {
    return Error{Errc::unavailable,
                 concat({"cannot create shared memory of ", std::to_string(bytes), " bytes: ", std::strerror(errno)})};
  }
  if (auto mapped = memory.map(bytes); !mapped) return mapped.error();
  return memory;
}

std::string SharedMemory::address() const {
  return concat({"/proc/", std::to_string(::getpid()), "/fd/", std::to_string(file_.get())});
}

Result<SharedMemory> SharedMemory::open(const std::string& address, std::size_t bytes) {
  SharedMemory memory;
  memory.file_ = FileDescriptor(::open(address.c_str(), O_RDWR | O_CLOEXEC));
  if (!memory.file_) {
    return Error{Errc::unavailable,
                 concat({"the shared memory at ", address, " cannot be opened: ", std::strerror(errno)})};
  }
  if (::lseek(memory.file_.get(), 0, SEEK_END) != static_cast<off_t>(bytes)) {
    return Error{Errc::unavailable, concat({address, " is not the shared memory of the other rank"})};
  }
  if (auto mapped = memory.map(bytes); !mapped) return mapped.error();
  return memory;
}

}  // namespace amldist::collective
