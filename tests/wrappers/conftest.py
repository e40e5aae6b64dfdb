"""The commands under test: those beside $AMLDIST_TOOL, by default of the development build. No Slurm is needed: where one
is, a stand-in for sbatch and its kin is put in front of it."""

from __future__ import annotations

import dataclasses
import os
import pathlib
import stat
import subprocess

import pytest

# One meaning for each number over all commands: aml_dist(7).
DONE, FAILED, USAGE, SKIPPED, NOT_FOUND, NO_SLURM, REFUSED = range(7)

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("AMLDIST_TOOL", ROOT / "build-development/bin/aml-dist")).parent


@dataclasses.dataclass
class Done:
    command: tuple[str, ...]
    status: int
    out: bytes
    err: bytes

    @property
    def text(self) -> str:
        return self.out.decode()

    @property
    def said(self) -> str:
        return self.err.decode(errors="replace")

    def __str__(self) -> str:
        return f"$ {self.command}\nstatus {self.status}\n--- out\n{self.out!r}\n--- err\n{self.said}"


class Command:
    """One of the commands, run with exactly these variables."""

    def __init__(self, name: str) -> None:
        self.path = BIN / name
        assert self.path.is_file(), f"{self.path} is not built: AMLDIST_TOOL must name the built aml-dist"

    def run(self, *arguments: str | bytes, cwd: pathlib.Path | None = None, env: dict[str, str] | None = None,
            stdin: bytes = b"", timeout: float = 30) -> Done:
        done = subprocess.run([self.path, *arguments], input=stdin, capture_output=True, cwd=cwd or "/", timeout=timeout,
                              env={"PATH": "/usr/bin:/bin", "AMLDIST_INSTANCE_TYPES": "", **(env or {})}, check=False)
        return Done(tuple(str(word) for word in arguments), done.returncode, done.stdout, done.stderr)

    def good(self, *arguments: str | bytes, **options) -> Done:
        done = self.run(*arguments, **options)
        assert done.status == 0, str(done)
        return done

    def refusal(self, status: int, *arguments: str | bytes, **options) -> str:
        """The one sentence by which a command says no; nothing on standard output."""
        done = self.run(*arguments, **options)
        assert done.status == status, str(done)
        assert done.out == b"", str(done)
        lines = done.said.splitlines()
        assert len(lines) == 1 and lines[0].startswith("aml-dist: "), str(done)
        assert len(lines[0]) < 400, lines[0]
        return lines[0].removeprefix("aml-dist: ")


@pytest.fixture(scope="session")
def aml_run() -> Command:
    return Command("aml-run")


@pytest.fixture(scope="session")
def aml_dist() -> Command:
    return Command("aml-dist")


@pytest.fixture(params=["torchrun", "mpirun", "deepspeed", "horovodrun"])
def launcher(request) -> Command:
    return Command(f"aml-{request.param}")


@pytest.fixture
def job(tmp_path):
    """Writes a job file, with a folder src beside it, and returns its path."""

    def write(text: str | bytes, name: str = "job.yml") -> str:
        (tmp_path / "src").mkdir(exist_ok=True)
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write


class Slurm:
    """Stand-ins for Slurm's programs that write down what they are given."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        self.env = {"PATH": f"{folder}/bin:/usr/bin:/bin"}

    def program(self, name: str, body: str) -> None:
        path = self.folder / "bin" / name
        path.write_text(f"#!/bin/bash\ncd {self.folder}\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def written(self, name: str) -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else ""


@pytest.fixture
def slurm(tmp_path) -> Slurm:
    folder = tmp_path / "slurm"
    folder.mkdir()
    return Slurm(folder)
