#include "base/os/cache_share.hpp"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <fstream>

#include "base/text/hex.hpp"

namespace amldist {
namespace {

struct Cache {
  std::size_t bytes = 16UL << 20;
  std::size_t processors = 1;  ///< processors that share it
};

/// The number of processors in a mask such as "0000000f,ffffffff"; 1 if it is empty.
std::size_t processors_of(const std::string& mask) {
  std::size_t count = 0;
  for (const char digit : mask) count += static_cast<std::size_t>(std::popcount(from_hex({&digit, 1}).value_or(0)));
  return std::max<std::size_t>(count, 1);
}

/// The last cache listed, which is the one farthest from the processor.
Cache last_cache(const std::string& folder) {
  Cache last;
  for (int index = 0;; ++index) {
    const std::string entry = folder + "/index" + std::to_string(index);
    std::size_t kibibytes = 0;
    if (!(std::ifstream(entry + "/size") >> kibibytes) || kibibytes == 0) return last;
    std::string mask;
    static_cast<void>(std::ifstream(entry + "/shared_cpu_map") >> mask);
    last = {kibibytes << 10, processors_of(mask)};
  }
}

}  // namespace

std::size_t cache_share(std::size_t ranks, const std::string& folder) {
  const Cache cache = last_cache(folder);
  const auto online = static_cast<std::size_t>(std::max(::sysconf(_SC_NPROCESSORS_ONLN), 1L));
  const std::size_t ranks_on_it = ranks * cache.processors / std::max(online, cache.processors);
  return cache.bytes / std::max<std::size_t>(ranks_on_it, 1);
}

}  // namespace amldist
