#include "spank/stepd/program_file.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/os/file_descriptor.hpp"
#include "base/text/text.hpp"

namespace amldist::spank {
namespace {

bool read_whole(int file, void* memory, std::size_t bytes, std::uint64_t offset) {
  return ::pread(file, memory, bytes, static_cast<off_t>(offset)) == static_cast<ssize_t>(bytes);
}

/// Whether the program names a dynamic linker. Files of other classes and byte orders are none of this machine's.
bool has_interpreter(int file, const Elf64_Ehdr& header) {
  constexpr std::size_t most = 256;
  if (header.e_phnum == 0 || header.e_phnum > most || header.e_phentsize != sizeof(Elf64_Phdr)) return true;
  std::vector<Elf64_Phdr> parts(header.e_phnum);
  if (!read_whole(file, parts.data(), parts.size() * sizeof parts[0], header.e_phoff)) return true;
  return std::ranges::any_of(parts, [](const Elf64_Phdr& part) { return part.p_type == PT_INTERP; });
}

bool is_elf64(int file, Elf64_Ehdr& header) {
  return read_whole(file, &header, sizeof header, 0) &&
         std::memcmp(static_cast<const void*>(header.e_ident), ELFMAG, SELFMAG) == 0 &&
         header.e_ident[EI_CLASS] == ELFCLASS64;
}

}  // namespace

std::string find_program(const std::string& program, const EnvironmentReader& environment) {
  if (program.find('/') != std::string::npos) return program;
  const std::string path = environment("PATH").value_or("/bin:/usr/bin");
  for (const std::string_view folder : text::split(path, ':')) {
    std::string candidate = text::concat({folder.empty() ? "." : folder, "/", program});
    if (::access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return {};
}

std::string_view why_not_preloaded(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status = {};
  const bool is_known = (file ? ::fstat(file.get(), &status) : ::stat(path.c_str(), &status)) == 0;
  if (!is_known || !S_ISREG(status.st_mode)) return {};
  const bool other_user = (status.st_mode & S_ISUID) != 0 && status.st_uid != ::geteuid();
  const bool other_group = (status.st_mode & S_ISGID) != 0 && status.st_gid != ::getegid();
  if (other_user || other_group) return "runs with another user's rights (setuid)";
  Elf64_Ehdr header = {};
  return file && is_elf64(file.get(), header) && !has_interpreter(file.get(), header) ? "is statically linked"
                                                                                      : std::string_view();
}

}  // namespace amldist::spank
