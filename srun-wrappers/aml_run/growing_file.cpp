#include "aml_run/growing_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <vector>

#include "base/os/file_descriptor.hpp"

namespace amldist::run {

void GrowingFile::read_new(const std::function<void(std::string_view)>& sink) {
  const FileDescriptor file(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info {};
  if (!file || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return;
  if (static_cast<std::uint64_t>(info.st_size) < read_) read_ = 0;
  std::vector<char> buffer(65536);
  for (;;) {
    const ssize_t count = ::pread(file.get(), buffer.data(), buffer.size(), static_cast<off_t>(read_));
    if (count <= 0) return;
    read_ += static_cast<std::uint64_t>(count);
    sink({buffer.data(), static_cast<std::size_t>(count)});
  }
}

}  // namespace amldist::run
