#include "spank/slurm/duplicate_load.hpp"

#include <link.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text/text.hpp"

namespace amldist::spank {
namespace {

struct Loaded {
  std::vector<std::string> before;  ///< in the order of loading
  std::string own;
};

bool is_own_code(const dl_phdr_info& object) {
  const auto here = reinterpret_cast<std::uintptr_t>(&find_duplicate_load);
  return std::ranges::any_of(std::span(object.dlpi_phdr, object.dlpi_phnum), [&](const auto& segment) {
    const std::uintptr_t start = object.dlpi_addr + segment.p_vaddr;
    return segment.p_type == PT_LOAD && here >= start && here - start < segment.p_memsz;
  });
}

/// A callback of dl_iterate_phdr: ends the walk at our own object. Nothing may be thrown through the loader.
int note_object(dl_phdr_info* object, std::size_t /*size*/, void* loaded) noexcept {
  auto& found = *static_cast<Loaded*>(loaded);
  try {
    const bool own = is_own_code(*object);
    (own ? found.own : found.before.emplace_back()) = object->dlpi_name;
    return own ? 1 : 0;
  } catch (...) {
    return 1;
  }
}

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

DuplicateLoad find_duplicate_load() {
  Loaded loaded;
  ::dl_iterate_phdr(note_object, &loaded);
  for (std::string& path : loaded.before)
    if (file_name(path) == file_name(loaded.own)) return {std::move(path), std::move(loaded.own)};
  return {{}, std::move(loaded.own)};
}

std::string to_sentence(const DuplicateLoad& duplicate) {
  return text::concat({"plugstack.conf loads this plugin twice, from ", duplicate.first, " and from ", duplicate.own,
                       ": the second line does nothing; keep one of them"});
}

}  // namespace amldist::spank
