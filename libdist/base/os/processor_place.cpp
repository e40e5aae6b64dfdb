#include "base/os/processor_place.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <climits>
#include <filesystem>

#include "base/os/whole_file.hpp"
#include "base/text/text.hpp"

namespace amldist {
namespace {

constexpr std::string_view digits = "0123456789";

/// The first number of a text such as "4-7,12", or -1.
int leading_number(std::string_view words) {
  const auto number = text::to_number(words.substr(0, words.find_first_not_of(digits)), INT_MAX);
  return number ? static_cast<int>(*number) : -1;
}

/// The last cache listed, which is the farthest from the processor.
int first_sharer_of_last_cache(const std::string& folder) {
  int first = -1;
  for (int index = 0;; ++index) {
    const std::string shared = first_line_of(folder + "/index" + std::to_string(index) + "/shared_cpu_list");
    if (shared.empty()) return first;
    first = leading_number(shared);
  }
}

/// The processor's folder has a link that is named for its NUMA node.
int memory_node(const std::string& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    constexpr std::string_view prefix = "node";
    if (name.starts_with(prefix) && name.find_first_not_of(digits, prefix.size()) == std::string::npos)
      return leading_number(std::string_view(name).substr(prefix.size()));
  }
  return -1;
}

/// Whether no processor with a smaller number is a thread of the same core.
bool is_first_of_core(int processor, const std::string& folder) {
  const int first =
      leading_number(first_line_of(folder + "/cpu" + std::to_string(processor) + "/topology/thread_siblings_list"));
  return first < 0 || first == processor;
}

/// Linux refuses a set with room for fewer processors than the machine may have; one cpu_set_t has room for 1,024.
constexpr int most_processors = 8192;
using ProcessorSet = std::array<cpu_set_t, most_processors / CPU_SETSIZE>;

}  // namespace

ProcessorPlace place_of_processor(int processor, const std::string& folder) {
  const std::string own = folder + "/cpu" + std::to_string(processor);
  return {first_sharer_of_last_cache(own + "/cache"), memory_node(own),
          leading_number(first_line_of(own + "/topology/physical_package_id"))};
}

std::vector<int> allowed_processors() {
  ProcessorSet allowed = {};
  std::vector<int> processors;
  if (::sched_getaffinity(0, sizeof allowed, allowed.data()) != 0) return processors;
  for (int processor = 0; processor < most_processors; ++processor) {
    if (CPU_ISSET_S(processor, sizeof allowed, allowed.data())) processors.push_back(processor);
  }
  return processors;
}

std::vector<int> own_processors(const std::string& folder) {
  std::vector<int> processors = allowed_processors();
  std::stable_partition(processors.begin(), processors.end(),
                        [&](int processor) { return is_first_of_core(processor, folder); });
  return processors;
}

void bind_to_processor(pid_t process, int processor) noexcept {
  ProcessorSet only = {};
  CPU_SET_S(static_cast<std::size_t>(processor), sizeof only, only.data());
  static_cast<void>(::sched_setaffinity(process, sizeof only, only.data()));
}

}  // namespace amldist
