"""A tab in bash, zsh and fish behind a started command line of aml-dist: what the shells themselves make of it."""

import re
import shutil
import subprocess

import pytest
from conftest import ROOT

FOLDER = ROOT / "contrib/completions"
ZSH_DRIVER = ROOT / "tests/tools/complete.zsh"
BASH_DRIVER = r"""
source "$1/aml-dist.bash"; shift
compopt() { :; }
for COMP_LINE; do
    COMP_POINT=${#COMP_LINE}
    read -ra COMP_WORDS <<<"${COMP_LINE//=/ = }"  # readline breaks words there too
    [[ $COMP_LINE != *[[:blank:]] ]] || COMP_WORDS+=('')
    COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
    _aml_dist
    word=${COMP_LINE##*[[:blank:]]}
    printf '%s\n' "${COMPREPLY[*]/#/${word%"${COMP_WORDS[-1]}"}}"
done
"""

# A command line, and the one word that fits. The shells show it in different ways, so only its end is compared.
LINES = [
    ("aml-dist expl", "explain"),
    ("aml-dist doc", "doctor"),
    ("aml-dist doctor --fr", "--framework"),
    ("aml-dist doctor --framework li", "lightning"),
    ("aml-dist doctor --mpi pm", "pmix"),
    ("aml-dist doctor --env-", "--env-file"),
    ("aml-dist explain --port", "--port-range"),
    ("aml-dist explain --aml-dist=ten", "tensorflow"),
    ("aml-dist explain --aml-dist=pytorch,sl", "slurm_env="),
    ("aml-dist explain --aml-dist=jax,rdma=req", "rdma=require"),
    ("aml-dist explain --aml-dist=tensorflow,worker_count=2,ev", "evaluator_count="),
    ("aml-dist check --pol", "--policy"),
    ("aml-dist bench --op allr", "allreduce"),
    ("aml-dist keep --sp", "--spares"),
    ("aml-dist keep --health qu", "quick"),
    ("aml-dist trace --la", "--last"),
    ("aml-dist trace --format open", "openmetrics"),
]


def need(shell):
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")


def answers(command, timeout=60):
    done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0 and done.stderr == "", done
    return done.stdout.splitlines()


def in_zsh(lines):
    return answers(["zsh", "-f", str(ZSH_DRIVER), str(FOLDER), *lines])


def in_fish(lines):
    """Fish lists what fits; the words that several choices have in common are what a tab would put in."""
    out = answers(["fish", "--no-config", "-c", f"source {FOLDER}/aml-dist.fish; "
                   "for line in $argv; complete -C $line | string replace -r '\t.*' '' | string join ' '; echo; end", *lines])
    return [line for line in out if line]


def in_bash(lines):
    return answers(["bash", "-c", BASH_DRIVER, "-", str(FOLDER), *lines])


@pytest.mark.parametrize("shell, run", [("bash", in_bash), ("zsh", in_zsh), ("fish", in_fish)])
def test_a_tab_completes_the_line(shell, run):
    need(shell)
    found = run([line for line, _ in LINES])
    assert len(found) == len(LINES), found
    for (line, word), answer in zip(LINES, found):
        choices = answer.split()[-1:] if shell == "zsh" else answer.split()
        assert choices and all(word in choice for choice in choices), (line, answer)


@pytest.mark.parametrize("shell, run", [("bash", in_bash), ("zsh", in_zsh), ("fish", in_fish)])
def test_nothing_is_made_up_where_nothing_fits(shell, run):
    need(shell)
    line = "aml-dist doctor --framework caffe"
    found = run([line, "aml-dist expl"])
    assert "caffe" not in "".join(found) or found[0] == line, found


def own_options(tool, subcommand):
    return set(re.findall(r"^\s+(?:-\w, )?--([a-z-]+)", tool.run(subcommand, "--help").stdout, re.M))


@pytest.mark.parametrize("file, offered", [
    ("aml-dist.bash", "--{}"), ("_aml-dist", "--{}"), ("aml-dist.fish", "-l {} ")])
@pytest.mark.parametrize("subcommand", ["explain", "doctor", "check", "bench", "trace"])
def test_every_option_is_offered(tool, file, offered, subcommand):
    options = own_options(tool, subcommand)
    assert len(options) >= 3, options
    text = (FOLDER / file).read_text()
    assert [name for name in sorted(options) if offered.format(name) not in text and name != "help"] == []


@pytest.mark.parametrize("file", ["aml-dist.bash", "_aml-dist", "aml-dist.fish"])
def test_every_key_of_the_option_is_offered(tool, file):
    keys = re.findall(r"^  ([a-z_]+)(?:=|  )", tool.run("explain", "--aml-dist=help").stdout.split("Keys:")[1], re.M)
    assert len(keys) > 12, keys
    text = (FOLDER / file).read_text()
    assert [key for key in keys if key not in text] == []
