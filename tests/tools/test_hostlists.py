"""Compressed host lists: expansion against Slurm's own, and every mention of a node exactly once."""

import pathlib
import random
import shutil
import subprocess

import pytest
from layouts import host_names

SEED = 20261121
LISTS = 150

SCONTROL = shutil.which("scontrol")


@pytest.fixture(scope="module")
def scontrol(tmp_path_factory):
    """`scontrol show hostnames` needs a configuration that it can read, but no controller."""
    if SCONTROL is None:
        pytest.skip("scontrol is not installed")
    conf = tmp_path_factory.mktemp("slurm") / "slurm.conf"
    conf.write_text("ClusterName=none\nSlurmctldHost=localhost\n")

    def expand(text: str) -> list[str] | None:
        """None where Slurm itself refuses the shape: 22.05 takes nothing behind the last bracket."""
        done = subprocess.run([SCONTROL, "show", "hostnames", text], capture_output=True, text=True, timeout=30,
                              env={"SLURM_CONF": str(pathlib.Path(conf))}, check=False)
        if "Invalid hostlist" in done.stderr:
            return None
        assert done.returncode == 0, (text, done.stderr)
        return done.stdout.split()

    return expand


def hosts_of(tool, text: str) -> list[str]:
    return [task["host"] for task in tool.tasks("--nodelist", text, "--tasks-per-node", "1", "--distribution", "block")]


@pytest.mark.parametrize("text", [
    "node1", "node[1-3,7]", "n[001-003]", "n[099-101]", "n[8-11]", "n[08-11]", "rack[0-1]b[0-2]", "a1,b[2-3],c",
    "n[1,3,2]", "gpu-[01-02]-[1-2]", "n[0-0]", "n[0001,5-6],m[9-10]",
])
def test_known_shapes_expand_as_slurm_expands_them(tool, scontrol, text):
    assert hosts_of(tool, text) == scontrol(text)


def test_text_behind_the_last_bracket(tool):
    assert hosts_of(tool, "c[1-2]-ib0,n[09-10].org") == ["c1-ib0", "c2-ib0", "n09.org", "n10.org"]


def test_three_brackets_name_the_same_nodes(tool, scontrol):
    """Slurm 22.05 runs the first of three brackets before the second; here the last always runs fastest."""
    text = "x[0-1]y[0-1]z[0-1]"
    assert sorted(hosts_of(tool, text)) == sorted(scontrol(text))


def test_random_lists_expand_as_slurm_expands_them(tool, scontrol):
    print("seed", SEED)
    rng = random.Random(SEED)
    compared = 0
    for _ in range(LISTS):
        text, names = host_names(rng, rng.randint(1, 40))
        print(text)
        assert hosts_of(tool, text) == names
        judged = scontrol(text)
        assert judged in (None, names)
        compared += judged is not None
    print(LISTS, "lists,", compared, "compared with scontrol")
    assert compared >= LISTS // 3


def test_ten_thousand_nodes(tool, scontrol):
    text = "rack[01-20]n[001-512]"
    hosts = hosts_of(tool, text)
    assert len(hosts) == 10240 and hosts == scontrol(text)
