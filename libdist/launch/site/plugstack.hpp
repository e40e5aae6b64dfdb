// How plugstack.conf loads this plugin. Under `optional` Slurm ignores every refusal and runs the job without its
// environment. Slurm does not tell a plugin how it was loaded, so srun reads the file itself.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace amldist::launch {

/// A line that loads spank_aml_dist.so.
struct PluginLine {
  std::size_t number = 0;  ///< in its file, from 1
  bool is_optional = false;
  std::string plugin;  ///< the path as written
  std::vector<std::string> arguments;
};

/// What one plugstack.conf says about this plugin, and the files that it includes (glob patterns).
struct Plugstack {
  std::vector<PluginLine> lines;
  std::vector<std::string> includes;
};

/// A file of the stack: plugstack.conf itself, or one that it includes.
struct PlugstackFile {
  std::string path;
  std::string fault;  ///< why it cannot be read; empty: it was read
  std::vector<PluginLine> lines;
};

/// Reads the text of a plugstack.conf.
[[nodiscard]] Plugstack parse_plugstack(std::string_view content);

/// slurm.conf's PlugStackConfig, else plugstack.conf in slurm.conf's folder ($SLURM_CONF, else /etc/slurm, else
/// slurmd's copy on a configless node).
[[nodiscard]] std::string plugstack_path();

/// A plugstack.conf with the files that it includes, in Slurm's order, at most 256.
[[nodiscard]] std::vector<PlugstackFile> read_plugstack(const std::string& path);

/// Whether the plugstack.conf in use loads this plugin as optional. False if it cannot be read.
[[nodiscard]] bool is_loaded_as_optional();

}  // namespace amldist::launch
