"""aml-dist check on fabricated nodes: the tool under test, and a way to run it."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
from collections.abc import Iterator

import pytest

TOOL = pathlib.Path(os.environ.get("AMLDIST_TOOL", pathlib.Path(__file__).resolve().parents[2] / "build-development/bin/aml-dist"))


@dataclasses.dataclass
class Outcome:
    status: int
    out: str
    err: str

    @property
    def report(self) -> dict:
        return json.loads(self.out)

    @property
    def checks(self) -> dict[str, dict]:
        checks = self.report["checks"]
        assert len({check["id"] for check in checks}) == len(checks), "an id appears twice"
        return {check["id"]: check for check in checks}

    @property
    def verdicts(self) -> dict[str, str]:
        return {name: check["verdict"] for name, check in self.checks.items()}


class Checker:
    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.count = 0

    def run(self, *arguments, env: dict[str, str] | None = None, timeout: float = 20) -> Outcome:
        done = subprocess.run([TOOL, "check", *map(str, arguments)], capture_output=True, timeout=timeout,
                              stdin=subprocess.DEVNULL, env={"PATH": os.environ["PATH"], **(env or {})})
        return Outcome(done.returncode, done.stdout.decode("ascii"), done.stderr.decode())

    def node(self, node, *arguments, env: dict[str, str] | None = None, timeout: float = 20) -> Outcome:
        """Builds a fabricated node and checks it. The one before it is removed."""
        self.remove_node()
        self.count += 1
        sys_folder, dev_folder = node.build(self.folder / str(self.count))
        return self.run("--sysfs-root", sys_folder, "--dev-root", dev_folder, "--json", *arguments, env=env,
                        timeout=timeout)

    def remove_node(self) -> None:
        """Thousands of nodes have a million files, which fill gigabytes of memory where temporary files are kept there."""
        shutil.rmtree(self.folder / str(self.count), ignore_errors=True)


@pytest.fixture
def checker(tmp_path) -> Iterator[Checker]:
    assert TOOL.is_file(), f"{TOOL} is not built (AMLDIST_TOOL names another)"
    checker = Checker(tmp_path)
    yield checker
    checker.remove_node()
