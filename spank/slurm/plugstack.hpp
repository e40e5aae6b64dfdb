// How plugstack.conf loads this plugin. Under `optional` Slurm ignores every refusal and runs the job without its
// environment. Slurm does not tell a plugin how it was loaded, so srun reads the file itself.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace amldist::spank {

/// The content of one plugstack.conf: whether it loads spank_aml_dist.so, and the files that it includes (glob
/// patterns).
struct Plugstack {
  std::optional<bool> optional;  ///< true: `optional`, false: `required`, nullopt: not loaded here
  std::vector<std::string> includes;
};

/// Reads the text of a plugstack.conf.
[[nodiscard]] Plugstack parse_plugstack(std::string_view content);

/// Whether the plugstack.conf beside slurm.conf ($SLURM_CONF, else /etc/slurm/slurm.conf), or a file that it includes,
/// loads this plugin as optional. False if no such file can be read.
[[nodiscard]] bool is_loaded_as_optional();

}  // namespace amldist::spank
