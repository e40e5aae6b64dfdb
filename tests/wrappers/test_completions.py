"""Completion of the commands for bash, zsh and fish."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from conftest import BIN, ROOT

FOLDER = ROOT / "contrib/completions"
FILES = {"bash": "aml-run.bash", "zsh": "_aml-run", "fish": "aml-run.fish"}


def own_options(aml_run) -> set[str]:
    """Long options that --help explains, without those of sbatch."""
    return set(re.findall(r"^  (?:-\w, )?--([a-z-]+)", aml_run.good("--help").text, re.M)) | {"help", "version"}


@pytest.mark.parametrize("shell", FILES)
def test_every_option_of_aml_run_is_offered(aml_run, shell):
    text = (FOLDER / FILES[shell]).read_text()
    for option in own_options(aml_run):
        offered = f"-l {option} " if shell == "fish" else f"--{option}"
        assert offered in text, option


@pytest.mark.parametrize("shell", FILES)
def test_the_shell_can_read_it(shell):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    done = subprocess.run([shell, "-n", FOLDER / FILES[shell]], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def complete(*words: str) -> set[str]:
    """What bash offers for the last of the words."""
    script = (f'source {FOLDER}/aml-run.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); compopt() {{ :; }}; '
              'case $1 in *aml-run) _aml_run "$1";; *) _aml_launcher "$1";; esac; printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "-c", script, "-", *words], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


def test_bash_offers_options_kinds_keys_and_files(aml_run):
    run = str(BIN / "aml-run")
    assert complete(run, "--dr") == {"--dry-run"}
    assert complete(run, "--kind", "py") == {"pytorch"} and complete(run, "--kind", "=", "m") == {"mpi"}
    assert "resources.instance_count=" in complete(run, "--set", "resources.i")
    assert "contrib/examples/aml-run/mpi.yml" in complete(run, "contrib/examples/aml-run/m")
    assert "cat" in complete(run, "--wait", "--", "ca")


def test_bash_takes_the_flags_of_a_launcher_from_its_table(launcher):
    assert complete(str(launcher.path), "--dry") == {"--dry-run"}
    wanted = {"aml-torchrun": "--nproc-per-node", "aml-mpirun": "--map-by", "aml-deepspeed": "--num_gpus",
              "aml-horovodrun": "--fusion-threshold-mb"}[launcher.path.name]
    assert wanted in complete(str(launcher.path), wanted[:4])
