#include "aml_dist/common/slurmstepd.hpp"

#include <poll.h>
#include <unistd.h>

#include "base/os/process_tree.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"
#include "shared/programs.hpp"

namespace amldist::tools {

Slurmstepd::Slurmstepd() {
  const ProcessTable table = ProcessTable::read();
  const ProcessStat* process = table.find(::getpid());
  constexpr int most = 64;  // numbers used again while /proc is read may make a circle
  for (int above = 0; process != nullptr && above < most; ++above, process = table.find(process->parent)) {
    if (first_line_of(text::concat({"/proc/", std::to_string(process->id), "/comm"})) != "slurmstepd") continue;
    handle_ = open_process(process->id);
    return;
  }
}

bool Slurmstepd::has_ended() const noexcept {
  pollfd file = {handle_.get(), POLLIN, 0};
  return handle_ && ::poll(&file, 1, 0) == 1;
}

void cancel_step(const std::string& step) { static_cast<void>(commands::run_program({"scancel", "--quiet", step})); }

}  // namespace amldist::tools
