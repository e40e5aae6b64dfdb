"""A plugin that was built for another Slurm: refused by Slurm before a line of it runs."""

import contextlib
import os
import pathlib
import re
import shutil
import subprocess

import pytest
from cluster import Cluster
from conftest import NAME, RELEASE
from oracle import check_pytorch

PLUGIN = pathlib.Path(os.environ.get("AMLDIST_PLUGIN", ""))


def place_of(symbol: str) -> int:
    """Where an exported constant lies in the plugin's file."""
    listed = subprocess.run(["readelf", "--wide", "--dyn-syms", PLUGIN], check=True, capture_output=True, text=True).stdout
    address, section = re.search(rf"^\s*\d+: ([0-9a-f]+) +4 OBJECT .* (\d+) {symbol}$", listed, re.M).groups()
    listed = subprocess.run(["readelf", "--wide", "--sections", PLUGIN], check=True, capture_output=True, text=True).stdout
    start, offset = re.search(rf"^\s*\[ *{section}\] \S+ +\S+ +([0-9a-f]+) ([0-9a-f]+)", listed, re.M).groups()
    return int(address, 16) - int(start, 16) + int(offset, 16)


def other_release(workdir, change: int) -> tuple[pathlib.Path, str]:
    """A copy that says that it was built for another release of Slurm, and that release."""
    copy = workdir / PLUGIN.name
    shutil.copyfile(PLUGIN, copy)
    place = place_of("plugin_version")
    with copy.open("r+b") as file:
        file.seek(place)
        number = int.from_bytes(file.read(4), "little")
        assert 20 <= number >> 16 <= 40, "plugin_version is Slurm's own number"
        file.seek(place)
        file.write((number + change).to_bytes(4, "little"))
    return copy, f"{number + change >> 16}.{number + change >> 8 & 255:02}"


@contextlib.contextmanager
def plugin_is(cluster, path):
    assert cluster.devcluster("plugin", str(path)).status == 0
    try:
        yield
    finally:
        assert cluster.devcluster("plugin", str(PLUGIN)).status == 0


def test_an_init_that_fails_would_fail_the_job_and_not_the_node(cluster):
    """From 25.05 on Slurm asks the plugin; before, the node is always drained (so our init never fails)."""
    exported = subprocess.run(["readelf", "--wide", "--dyn-syms", PLUGIN], check=True, capture_output=True, text=True).stdout
    year, month = (int(part) for part in re.search(r"(\d+)\.(\d+)", cluster.run("srun --version").out).groups())
    assert ("slurm_spank_init_failure_mode" in exported) == ((year, month) >= (25, 5))


@pytest.mark.parametrize("change", [0x000100, -0x000100, 0x010000])
def test_another_release_is_refused_by_srun(cluster, workdir, change):
    """These are the sentences of the administrator guide. Nothing runs, with the option or without it."""
    copy, release = other_release(workdir, change)
    with plugin_is(cluster, copy):
        for option in ("", "--aml-dist=pytorch"):
            done = cluster.run(f"srun -N1 -n1 {option} true")
            assert done.status == 1 and not done.own_lines(), str(done)
            assert re.search(rf"Incompatible Slurm plugin {copy} version \({release}\.\d+\)", done.err), str(done)
            assert f"spank: {copy}: Incompatible plugin version" in done.err, str(done)
            assert f"Failed to load plugin {copy}. Aborting." in done.err, str(done)
    check_pytorch(cluster.tasks("-N2 -n2 --aml-dist=pytorch"))


def test_another_patch_release_is_accepted(cluster, workdir):
    """SPANK plugins need only match the major and minor number."""
    copy, _ = other_release(workdir, 1)
    with plugin_is(cluster, copy):
        check_pytorch(cluster.tasks("-N2 -n2 --aml-dist=pytorch"))


def test_it_is_found_by_name_in_slurms_plugin_folder(cluster, workdir):
    """As the packages write it: no folder in plugstack.conf. (slurmd reads PluginDir when it starts: a cluster of its own.)"""
    folders = re.search(r"PluginDir\s*=\s*(\S+)", cluster.run("scontrol show config").out).group(1)
    line = workdir / "plugstack.conf"
    line.write_text(f"required {PLUGIN.name}\n")
    other = Cluster(f"{NAME}-pd"[-16:].lstrip("-"), 2)
    started = other.devcluster("start", "--nodes", "2", "--plugstack", str(line), "--conf",
                               f"PluginDir={folders}:{PLUGIN.parent}", *(["--release", RELEASE] if RELEASE else []))
    try:
        assert started.status == 0, str(started)
        done = other.run("srun --aml-dist=help")
        assert done.status == 0 and done.out.startswith("--aml-dist=KIND"), str(done)
        check_pytorch(other.tasks("-N2 -n2 --aml-dist=pytorch"))
    finally:
        assert other.devcluster("stop").status == 0
