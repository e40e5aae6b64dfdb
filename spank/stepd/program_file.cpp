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

/// What the dynamic linker reads of a program. The file may hold anything.
class DynamicSections {
 public:
  DynamicSections(int file, const Elf64_Ehdr& header) {
    if (header.e_shentsize != sizeof(Elf64_Shdr)) return;
    std::vector<Elf64_Shdr> sections(header.e_shnum);
    if (!read_whole(file, sections.data(), sections.size() * sizeof sections[0], header.e_shoff)) return;
    for (const Elf64_Shdr& each : sections) {
      if (each.sh_type == SHT_DYNAMIC && entries_.empty()) read(file, each, entries_);
      if (each.sh_type != SHT_DYNSYM || each.sh_link >= sections.size() || !symbols_.empty()) continue;
      read(file, each, symbols_);
      read(file, sections[each.sh_link], names_);
    }
  }

  /// Functions of MPI that another file has to define: whether they are all weak, and at least one is named.
  [[nodiscard]] bool names_mpi_only_weakly() const {
    bool any = false;
    for (const Elf64_Sym& each : symbols_) {
      if (each.st_shndx != SHN_UNDEF || !name_at(each.st_name).starts_with("MPI_")) continue;
      if (ELF64_ST_BIND(each.st_info) != STB_WEAK) return false;
      any = true;
    }
    return any;
  }
  [[nodiscard]] bool needs_mpi() const {
    return std::ranges::any_of(entries_, [this](const Elf64_Dyn& each) {
      const std::uint64_t value = each.d_un.d_val;  // NOLINT(cppcoreguidelines-pro-type-union-access): the format's own
      return each.d_tag == DT_NEEDED && name_at(value).starts_with("libmpi");
    });
  }

 private:
  template <typename Entry>
  static void read(int file, const Elf64_Shdr& section, std::vector<Entry>& out) {
    constexpr std::uint64_t most_bytes = 1U << 24;
    if (section.sh_size > most_bytes) return;
    out.resize(section.sh_size / sizeof(Entry));
    if (!read_whole(file, out.data(), out.size() * sizeof(Entry), section.sh_offset)) out.clear();
  }
  [[nodiscard]] std::string_view name_at(std::uint64_t place) const {
    if (place >= names_.size()) return {};
    return {names_.data() + place, ::strnlen(names_.data() + place, names_.size() - place)};
  }

  std::vector<Elf64_Dyn> entries_;
  std::vector<Elf64_Sym> symbols_;
  std::vector<char> names_;
};

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

bool asks_for_mpi(const std::string& path) {
  const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status = {};
  Elf64_Ehdr header = {};
  const bool is_program =
      file && ::fstat(file.get(), &status) == 0 && S_ISREG(status.st_mode) && is_elf64(file.get(), header);
  if (!is_program) return false;
  const DynamicSections sections(file.get(), header);
  return sections.names_mpi_only_weakly() && !sections.needs_mpi();
}

}  // namespace amldist::spank
