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
  std::vector<std::string> after;
};

bool is_own_code(const dl_phdr_info& object) {
  const auto here = reinterpret_cast<std::uintptr_t>(&find_duplicate_load);
  return std::ranges::any_of(std::span(object.dlpi_phdr, object.dlpi_phnum), [&](const auto& segment) {
    const std::uintptr_t start = object.dlpi_addr + segment.p_vaddr;
    return segment.p_type == PT_LOAD && here >= start && here - start < segment.p_memsz;
  });
}

/// A callback of dl_iterate_phdr. Nothing may be thrown through the loader.
int note_object(dl_phdr_info* object, std::size_t /*size*/, void* loaded) noexcept {
  auto& found = *static_cast<Loaded*>(loaded);
  try {
    if (is_own_code(*object)) found.own = object->dlpi_name;
    else (found.own.empty() ? found.before : found.after).emplace_back(object->dlpi_name);
    return 0;
  } catch (...) {  // no memory: dl_iterate_phdr ends, and nothing is warned about
    return 1;
  }
}

std::string_view file_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

Loaded loaded_objects() {
  Loaded loaded;
  ::dl_iterate_phdr(note_object, &loaded);
  return loaded;
}

std::string first_like(const std::string& own, std::vector<std::string>& paths) {
  const auto found = std::ranges::find(paths, file_name(own), file_name);
  return found == paths.end() ? std::string() : std::move(*found);
}

}  // namespace

DuplicateLoad find_duplicate_load() {
  Loaded loaded = loaded_objects();
  return {first_like(loaded.own, loaded.before), std::move(loaded.own)};
}

std::string describe_other_release() {
  Loaded loaded = loaded_objects();
  const std::string later = first_like(loaded.own, loaded.after);
  if (later.empty()) return {};
  return text::concat({"plugstack.conf loads two releases of this plugin, from ", loaded.own, " and from ", later,
                       ", and the second one removes what the first sends to the nodes: keep one of the lines"});
}

std::string to_sentence(const DuplicateLoad& duplicate) {
  return text::concat({"plugstack.conf loads this plugin twice, from ", duplicate.first, " and from ", duplicate.own,
                       ": the second line does nothing; keep one of them"});
}

}  // namespace amldist::spank
