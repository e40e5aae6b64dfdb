// The administrator's settings for images, conda files and data behind https:; each is off unless configured.
#pragma once

#include <string>
#include <vector>

namespace amldist::run {

/// How `environment.image` is run.
struct ImagePolicy {
  enum class By { nothing, pyxis, apptainer, podman };
  By by = By::nothing;
  std::string program = {};          ///< as the table names it: podman or podman-hpc
  std::vector<std::string> mounts;   ///< folders that every container sees
  std::vector<std::string> options;  ///< of srun with pyxis, of apptainer exec: [--nv], of podman run
};

/// How `environment.conda_file` becomes an environment.
struct CondaPolicy {
  std::string program;  ///< micromamba, mamba, conda or uv, or its path; empty: conda files are not used
  std::string folder;   ///< shared by the nodes
};

}  // namespace amldist::run
