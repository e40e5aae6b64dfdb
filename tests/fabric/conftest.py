"""aml-dist check on fabricated nodes: the tool under test, and a way to run it."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import subprocess

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
        """Builds a fabricated node and checks it."""
        self.count += 1
        sys_folder, dev_folder = node.build(self.folder / str(self.count))
        return self.run("--sysfs-root", sys_folder, "--dev-root", dev_folder, "--json", *arguments, env=env,
                        timeout=timeout)


@pytest.fixture
def checker(tmp_path) -> Checker:
    assert TOOL.is_file(), f"{TOOL} is not built (AMLDIST_TOOL names another)"
    return Checker(tmp_path)
