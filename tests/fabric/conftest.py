"""aml-dist check on fabricated nodes: the tool under test, and a way to run it."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
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
    KEPT = 50  # nodes of a test, until they are removed together

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.count = self.removed = 0  # numbers of nodes: of those that were built, the first ones were removed

    def run(self, *arguments, env: dict[str, str] | None = None, timeout: float = 20) -> Outcome:
        done = subprocess.run([TOOL, "check", *map(str, arguments)], capture_output=True, timeout=timeout,
                              stdin=subprocess.DEVNULL, env={"PATH": os.environ["PATH"], **(env or {})})
        return Outcome(done.returncode, done.stdout.decode("ascii"), done.stderr.decode())

    def node(self, node, *arguments, env: dict[str, str] | None = None, timeout: float = 20) -> Outcome:
        """Builds a fabricated node and checks it."""
        if self.count - self.removed == self.KEPT:
            self.remove_nodes()
        self.count += 1
        sys_folder, dev_folder = node.build(self.folder / str(self.count))
        return self.run("--sysfs-root", sys_folder, "--dev-root", dev_folder, "--json", *arguments, env=env,
                        timeout=timeout)

    def remove_nodes(self) -> None:
        """All that were built. Thousands of nodes have a million files, which fill gigabytes of memory where temporary files
        are kept there."""
        if self.count:
            numbers = range(self.removed + 1, self.count + 1)
            subprocess.run(["rm", "-rf", *(self.folder / str(number) for number in numbers)], check=True, env={"PATH": os.environ["PATH"]})
            self.removed = self.count


@pytest.fixture
def checker(tmp_path) -> Iterator[Checker]:
    assert TOOL.is_file(), f"{TOOL} is not built (AMLDIST_TOOL names another)"
    checker = Checker(tmp_path)
    yield checker
    checker.remove_nodes()
