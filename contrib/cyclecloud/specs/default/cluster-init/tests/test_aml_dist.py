"""CycleCloud runs this on each node after cluster-init."""

import os
import subprocess


def test_the_plugin_is_there_and_loads():
    assert os.path.exists("/etc/slurm/plugstack.conf.d/aml-dist.conf")
    done = subprocess.run(["srun", "--aml-dist=help"], capture_output=True, text=True)
    assert done.returncode == 0 and "pytorch" in done.stdout, done
