"""tests/run works on a machine to which nothing but Debian's packages was added: there, too, pytest finds all tests."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_the_tests_of_frameworks_are_found_where_none_is_installed(tmp_path):
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider", ROOT / "tests/frameworks"],
                          env=os.environ | {"AMLDIST_FRAMEWORKS": str(tmp_path), "PYTEST_ADDOPTS": ""}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
