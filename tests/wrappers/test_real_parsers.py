"""Some of tests/soak/launchers in the usual run: random command lines through Debian's PyTorch and Debian's Open MPI."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest
from conftest import ROOT

SOAK = ROOT / "tests/soak/launchers/run"


def test_a_line_is_taken_by_both_or_refused_by_both_and_means_the_same():
    done = subprocess.run([sys.executable, SOAK, "--lines", "200", "torchrun"], capture_output=True, text=True, timeout=600, check=False)
    if "No module named 'torch'" in done.stderr:
        pytest.skip("PyTorch is not installed (Debian: python3-torch)")
    assert done.returncode == 0, done.stdout + done.stderr
    lines, same, refused = [int(cell) for cell in done.stdout.splitlines()[-1].split("|")[2:5]]
    assert lines == 200 and same > 100 and refused > 20, done.stdout


def test_mpirun_starts_what_our_line_starts():
    """Of one program each: releases of Open MPI differ in what a flag behind a ":" is for."""
    mpirun = shutil.which("mpirun.openmpi")
    if mpirun is None:
        pytest.skip("Open MPI is not installed (Debian: openmpi-bin)")
    done = subprocess.run([sys.executable, SOAK, "--lines", "20", "--programs", "1", "--mpirun", mpirun], capture_output=True, text=True,
                          timeout=600, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines, same, refused = [int(cell) for cell in done.stdout.splitlines()[-1].split("|")[2:5]]
    assert lines == 20 and same > 2 and refused > 2, done.stdout
