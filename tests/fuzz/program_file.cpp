// A task's program, which the plugin looks at before it is executed: any file.
#include "spank/stepd/program_file.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "base/os/whole_file.hpp"
#include "fuzz.hpp"

namespace amldist::fuzz::program_file {

const std::string_view separator = "\x7f";

void try_input(std::string_view input) {
  static const int file = ::memfd_create("program", MFD_CLOEXEC);
  static const std::string path = "/proc/self/fd/" + std::to_string(file);
  require(::ftruncate(file, 0) == 0 && ::lseek(file, 0, SEEK_SET) == 0 && write_all(file, input), "a file of its own");
  const std::string_view why = within(std::size_t{1} << 20, [] { return spank::why_not_preloaded(path); });
  require(why.empty() || why == "is statically linked", "a file without setuid is linked in one of two ways");
}

}  // namespace amldist::fuzz::program_file
