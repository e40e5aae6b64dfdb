#include "spank/stepd/watched_recorders.hpp"

#include <dirent.h>
#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <set>
#include <string>

#include "base/text/tasks_per_node.hpp"
#include "base/text/text.hpp"
#include "trace/record/record_format.hpp"

namespace amldist::spank {
namespace {

using text::concat;
using trace::Recording;

std::optional<Recording> read(const WatchedNode& node, std::uint32_t rank, std::string_view source,
                              std::size_t newest) {
  constexpr std::chrono::seconds moment{1};
  const auto age_of_step = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - node.begin + moment);
  for (const std::string& root : node.roots) {
    auto found = trace::read_recording(
        AT_FDCWD, concat({root, "/", node.step, "/", std::to_string(rank), source, ".trace"}), newest);
    const bool is_here = found && (!node.has_launchers || found->host == node.host);  // the folder may be shared
    if (is_here && found->rank == rank && found->age_ms() <= age_of_step.count()) return std::move(*found);
  }
  return std::nullopt;
}

}  // namespace

bool has_exited(const WatchedNode& node, std::uint32_t rank) {
  if (node.has_launchers || !node.exited) return false;
  const auto own = std::ranges::find(node.ranks, rank);
  return node.exited->has(static_cast<std::size_t>(own - node.ranks.begin()));
}

std::vector<std::uint32_t> named_ranks(const WatchedNode& node) {
  std::set<std::uint32_t> ranks;
  for (const std::string& root : node.roots) {
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir(concat({root, "/", node.step}).c_str()), &::closedir);
    while (const dirent* const entry = folder && ranks.size() < most_named_ranks ? ::readdir(folder.get()) : nullptr) {
      const std::string_view name = entry->d_name;
      const auto rank = text::to_number(name.substr(0, name.find('.')), most_tasks);
      if (rank && name.ends_with(".trace")) ranks.insert(static_cast<std::uint32_t>(*rank));
    }
  }
  return {ranks.begin(), ranks.end()};
}

std::optional<Recording> recording_of(const WatchedNode& node, std::uint32_t rank, std::string_view source) {
  auto recording = read(node, rank, source, trace::recorder_format::largest_ring);
  if (recording) recording->has_exited = recording->writer == trace::Writer::gone && has_exited(node, rank);
  return recording;
}

bool has_recorder(const WatchedNode& node, std::uint32_t rank, std::string_view source) {
  return read(node, rank, source, 0).has_value();
}

}  // namespace amldist::spank
