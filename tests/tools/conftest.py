"""The tool under test: $AMLDIST_TOOL, by default the one of the development build."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Tool:
    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def run(self, *arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess:
        """Runs the tool with exactly these variables, so that a surrounding job cannot show through."""
        return subprocess.run([str(self.path), *arguments], capture_output=True, text=True, timeout=60, env=env or {},
                              stdin=subprocess.DEVNULL, check=False)

    def tasks(self, *arguments: str, env: dict[str, str] | None = None) -> list[dict]:
        """`explain --json`, parsed."""
        done = self.run("explain", "--json", *arguments, env=env)
        assert done.returncode == 0 and done.stderr == "", (arguments, done.returncode, done.stderr)
        return json.loads(done.stdout)


@pytest.fixture(scope="session")
def tool() -> Tool:
    path = pathlib.Path(os.environ.get("AMLDIST_TOOL", ROOT / "build-development/bin/aml-dist"))
    assert path.is_file(), "AMLDIST_TOOL must name the built aml-dist"
    return Tool(path)
