#include "aml_dist/ray/stopped_process.hpp"

#include "base/os/process_tree.hpp"
#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"

namespace amldist::ray {
namespace {

using text::concat;

/// The name of a server of Ray's that is stopped; empty: it is none, or runs. /proc/ID/stat: "ID (raylet) T ...".
std::string stopped_server(pid_t process) {
  constexpr std::size_t most = 512;
  const std::string stat = read_file_start(concat({"/proc/", std::to_string(process), "/stat"}), most);
  for (const char* const name : {"raylet", "gcs_server"}) {
    if (stat.find(concat({"(", name, ") T"})) != std::string::npos) return name;
  }
  return {};
}

}  // namespace

std::optional<std::string> StoppedProcess::find() {
  constexpr auto interval = std::chrono::seconds(5);
  constexpr int most_looks = 6;
  if (Clock::now() < next_look_) return std::nullopt;
  next_look_ = Clock::now() + interval;
  for (const pid_t each : descendants()) {
    const std::string name = stopped_server(each);
    if (name.empty()) continue;
    looks_ = each == process_ ? looks_ + 1 : 0;
    process_ = each;
    if (looks_ < most_looks) return std::nullopt;
    return concat({name, " (process ", std::to_string(each), ") is stopped (SIGSTOP) for ",
                   std::to_string(looks_ * interval.count()), " s"});
  }
  process_ = 0;
  return std::nullopt;
}

}  // namespace amldist::ray
