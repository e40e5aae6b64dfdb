// What the administrator's table says of images, conda files and data behind https: all of it is off unless it is
// there.
#pragma once

#include <string>
#include <vector>

namespace amldist::run {

/// How `environment.image` is run.
struct ImagePolicy {
  enum class By { nothing, pyxis, apptainer };
  By by = By::nothing;
  std::vector<std::string> mounts;   ///< folders that every container sees
  std::vector<std::string> options;  ///< of srun with pyxis, of apptainer exec: [--nv]
};

/// How `environment.conda_file` becomes an environment.
struct CondaPolicy {
  std::string program;  ///< micromamba, mamba, conda or uv, or its path; empty: files are not used
  std::string folder;   ///< that the nodes share
};

}  // namespace amldist::run
