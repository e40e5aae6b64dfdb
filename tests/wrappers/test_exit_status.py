"""One meaning for each exit status over all commands: the header, the manual and what the commands do agree."""

from __future__ import annotations

import re

import pytest
from conftest import FAILED, NO_SLURM, NOT_FOUND, REFUSED, ROOT, SKIPPED, USAGE, Command

LAYOUT = ["--nodelist", "n1", "--tasks-per-node", "2"]
NOWHERE = {"PATH": "/nowhere"}


def test_the_manual_has_the_numbers_of_the_header():
    header = (ROOT / "srun-wrappers/shared/exit_status.hpp").read_text()
    numbers = re.findall(r"^  exit_\w+ = (\d+),", header, re.M)
    section = (ROOT / "docs/man/aml_dist.7").read_text().split(".Sh EXIT STATUS")[1].split(".Sh ")[0]
    assert numbers and re.findall(r"^\.It (\d+)$", section, re.M) == numbers


def test_every_command_refers_to_the_manual():
    for name in ("aml-run", "aml-torchrun", "aml-mpirun", "aml-deepspeed", "aml-horovodrun"):
        text = Command(name).good("--help").text
        assert "Exit status: " in text and "(see aml_dist(7))" in text and "5 no Slurm, 6 refused by Slurm" in text, name
        page = (ROOT / f"docs/man/{name if name == 'aml-run' else 'aml-launchers'}.1").read_text().split(".Sh EXIT STATUS")[1].split(".Sh ")[0]
        assert ".Xr aml_dist 7" in page, name
    for name in ("explain", "doctor", "check", "bench", "trace"):
        assert "others as in aml_dist(7)" in Command("aml-dist").good(name, "--help").text, name


@pytest.mark.parametrize("status, command, arguments, env", [
    (FAILED, "aml-dist", ["explain", "--aml-dist", "mpi,process_count=3", *LAYOUT], {}),
    (FAILED, "aml-dist", ["explain", *LAYOUT, "--svg", "/nonexistent/x.svg"], {}),
    (USAGE, "aml-dist", ["nonsense"], {}),
    (USAGE, "aml-dist", ["explain", "--aml-dist", "pytroch", *LAYOUT], {}),
    (USAGE, "aml-dist", ["exec"], {}),
    (USAGE, "aml-run", ["--kind", "pytroch", "--", "x"], {}),
    (USAGE, "aml-torchrun", ["--no-such-flag", "x.py"], {}),
    (USAGE, "aml-mpirun", ["-n", "many", "x"], {}),
    (NOT_FOUND, "aml-dist", ["explain", "--hostfile", "/nonexistent"], {}),
    (NOT_FOUND, "aml-dist", ["doctor", "--env-file", "/nonexistent"], {}),
    (NOT_FOUND, "aml-dist", ["check", "--sysfs-root", "/nonexistent"], {}),
    (NOT_FOUND, "aml-dist", ["bench", "--ranks", "2", "--peer", "nompi"], {}),
    (NOT_FOUND, "aml-dist", ["trace", "/nonexistent/folder"], {}),
    (NOT_FOUND, "aml-run", ["/nonexistent.yml"], {}),
    (NOT_FOUND, "aml-mpirun", ["--hostfile", "/nonexistent", "x"], {}),
    (NOT_FOUND, "aml-deepspeed", ["--hostfile", "/nonexistent", "x.py"], {}),
    (NO_SLURM, "aml-run", ["--", "x"], NOWHERE),
    (NO_SLURM, "aml-run", ["--", "x"], {**NOWHERE, "SLURM_JOB_ID": "9"}),
    (NO_SLURM, "aml-torchrun", ["x.py"], NOWHERE),
    (NO_SLURM, "aml-mpirun", ["-n", "1", "x"], NOWHERE),
    (NO_SLURM, "aml-deepspeed", ["--num_nodes", "1", "--num_gpus", "1", "x.py"], NOWHERE),
    (NO_SLURM, "aml-horovodrun", ["-np", "1", "x"], NOWHERE),
])
def test_the_same_number_means_the_same(status, command, arguments, env):
    Command(command).refusal(status, *arguments, env=env)


def test_nothing_to_verify_is_skipped(tmp_path):
    for name in ("sys", "dev"):
        (tmp_path / name).mkdir()
    done = Command("aml-dist").run("check", "--sysfs-root", tmp_path / "sys", "--dev-root", tmp_path / "dev")
    assert done.status == SKIPPED, str(done)


def test_a_file_that_may_not_be_read_is_no_missing_slurm(tmp_path, slurm):
    """It was said with the number for "no Slurm"."""
    loop = tmp_path / "loop.yml"
    loop.symlink_to(loop)
    assert "cannot be read" in Command("aml-run").refusal(FAILED, "--dry-run", str(loop), env=slurm.env)


def test_a_job_that_slurm_refuses(slurm):
    slurm.program("sbatch", "cat >script; echo 'sbatch: error: Invalid account' >&2; exit 1")
    Command("aml-run").refusal(REFUSED, "--", "x", env=slurm.env)


def test_a_programs_own_status_is_handed_on(slurm):
    slurm.program("srun", "exit 5")
    assert Command("aml-torchrun").run("x.py", env=slurm.env).status == 5
