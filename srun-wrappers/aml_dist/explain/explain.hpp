// `aml-dist explain`: the environment of every task, computed by the plugin's own functions, without a cluster.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "aml_dist/common/explanation.hpp"
#include "aml_dist/explain/layout.hpp"
#include "base/text/port_ranges.hpp"

namespace amldist::tools {

struct ExplainOptions {
  std::string option;  ///< --aml-dist
  LayoutOptions layout;
  std::optional<std::uint32_t> task;  ///< --task N: only this rank, as export lines
  std::string port_range = default_port_range().to_string();
  std::string cluster;
  std::uint32_t job = 1;
  std::uint32_t step = 0;
  std::uint32_t restart = 0;
  std::uint32_t gpus_per_node = 0;  ///< GPUs that each task sees; 0: none
  bool json = false;
  std::string topology;  ///< --topology FILE: count links between neighbours; "" without
  std::string svg;       ///< --svg FILE: the layout as a picture, beside what is printed
};

/// The step that the options describe. Errors: as of the grammars, make_placement() and check_counts().
[[nodiscard]] Result<Explanation> explain_layout(const ExplainOptions& options);

/// Prints to standard output; returns an ExitStatus. Errors go to standard error, one line.
int explain(const ExplainOptions& options);

}  // namespace amldist::tools
