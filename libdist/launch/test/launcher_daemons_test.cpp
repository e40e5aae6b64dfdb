#include "launch/frameworks/launcher_daemons.hpp"

#include <gtest/gtest.h>

namespace amldist::launch {
namespace {

TEST(LauncherDaemons, AreKnownByTheirNames) {
  for (const char* const daemon : {"orted", "/usr/bin/orted", "/opt/openmpi5/bin/prted", "./hydra_pmi_proxy",
                                   "/opt/intel/mpi/latest/bin/hydra_bstrap_proxy", "mpispawn"}) {
    EXPECT_TRUE(is_launcher_daemon(daemon)) << daemon;
  }
}

TEST(LauncherDaemons, AreNotProgramsOfSimilarNames) {
  for (const char* const program : {"", "/", "python", "orted.py", "my-orted", "orted/", "mpirun", "hydra"}) {
    EXPECT_FALSE(is_launcher_daemon(program)) << program;
  }
}

}  // namespace
}  // namespace amldist::launch
