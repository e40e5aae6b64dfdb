"""Every man page passes mandoc's lint."""

import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = sorted(path.name for path in (ROOT / "docs/man").iterdir())


@pytest.mark.parametrize("page", PAGES)
def test_mandoc(page):
    done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", page], cwd=ROOT / "docs/man", capture_output=True,
                          text=True)
    assert done.returncode == 0, done.stdout
