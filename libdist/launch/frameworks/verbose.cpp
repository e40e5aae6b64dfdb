#include "launch/frameworks/verbose.hpp"

#include "base/text/text.hpp"

namespace amldist::launch {

std::string placement_line(const Spec& spec, const Placement& placement, std::string_view address) {
  return text::concat({to_string(spec.kind), " ", to_string(spec.launch), ": ",
                       text::count(placement.map.size(), "task"), " on ", text::count(placement.map.nodes(), "node"),
                       ", map ", placement.map.to_string(), " (", to_string(placement.provenance), ": ",
                       placement.source, "), rank 0 on ", placement.master_host(), ", address ", address});
}

}  // namespace amldist::launch
