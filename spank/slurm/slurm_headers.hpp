// Slurm's headers, as C++ can take them: spank.h declares the plugin's callbacks outside its own extern "C".
#pragma once

extern "C" {
#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>
#include <slurm/spank.h>
}
