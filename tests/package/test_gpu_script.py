"""tests/gpu/run builds what it runs by itself, on machines without CMake and a network. That it still can is seen here."""

import os
import pathlib
import shutil
import subprocess

import pytest

SCRIPT = pathlib.Path(__file__).resolve().parents[1] / "gpu" / "run"
SKIPPED = 77


def test_the_gpu_tests_are_built_with_nothing_but_compilers():
    quick = "clang++" if shutil.which("clang++") else "g++"  # in a third of the time; with g++ all else is built
    done = subprocess.run([SCRIPT, "--build-only"], capture_output=True, text=True, timeout=1800, env={**os.environ, "CXX": quick})
    if done.returncode == SKIPPED:
        pytest.skip(done.stdout.strip())
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    assert done.stdout.splitlines()[-1] == "gpu: built"


def test_without_a_gpu_they_are_skipped_with_the_reason():
    if pathlib.Path("/dev/nvidiactl").exists():
        pytest.skip("this machine has a GPU: run tests/gpu/run")
    done = subprocess.run([SCRIPT], capture_output=True, text=True, timeout=60)
    assert done.returncode == SKIPPED
    assert done.stdout.startswith("gpu: skipped: there is no ")


def test_a_wrong_option_is_named():
    done = subprocess.run([SCRIPT, "--rank", "2"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert "'--rank'" in done.stderr
