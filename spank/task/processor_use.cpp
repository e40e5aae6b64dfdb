#include "spank/task/processor_use.hpp"

#include <sys/resource.h>

#include <algorithm>

#include "base/text/text.hpp"

namespace amldist::spank {
namespace {

std::chrono::milliseconds to_milliseconds(const timeval& time) {
  return std::chrono::milliseconds(time.tv_sec * 1000 + time.tv_usec / 1000);
}

std::string in_seconds(std::uint64_t ms) {
  const std::uint64_t tenths = ms / 100;
  return text::concat({std::to_string(tenths / 10), ".", std::to_string(tenths % 10), " s"});
}

}  // namespace

std::chrono::milliseconds time_of_children() noexcept {
  rusage used = {};
  if (::getrusage(RUSAGE_CHILDREN, &used) != 0) return {};
  return to_milliseconds(used.ru_utime) + to_milliseconds(used.ru_stime);
}

std::string processor_line(const std::string& host, std::chrono::milliseconds used, std::uint64_t processors,
                           std::chrono::milliseconds elapsed) {
  const auto spent = static_cast<std::uint64_t>(used.count());
  const std::uint64_t held = processors * static_cast<std::uint64_t>(elapsed.count());
  const std::uint64_t part = spent * 100 / std::max<std::uint64_t>(held, 1);
  return text::concat({"processors of ", host, ": ", in_seconds(spent), " used of ", in_seconds(held), " held (",
                       std::to_string(part), " %)"});
}

}  // namespace amldist::spank
