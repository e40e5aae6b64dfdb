"""The plugin's package for SchedMD's own packages of Slurm (slurm-smd*), in a root where these stand in Debian's place.

The stand-ins have the names, places and conflicts of SchedMD's source (make_schedmd_packages); what is in them is Debian's. The root
is a layer over the one in which the suites are built, and is gone afterwards.
"""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
DEVCLUSTER = ROOT / "contrib/devcluster/devcluster"
SLURM = os.environ["AMLDIST_TEST_SLURM"]
RELEASE = os.environ["AMLDIST_TEST_RELEASE"]
PACKAGE = f"aml-dist-slurm-smd{SLURM}"
NAMES = ["slurm-smd", "slurm-smd-client", "slurm-smd-slurmd", "slurm-smd-slurmctld", "slurm-smd-dev"]


class Machine:
    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.root = folder / "roots" / RELEASE
        self.packages = folder / "packages"
        self.environment = {**os.environ, "DEVCLUSTER_ROOTS": str(folder / "roots")}

    def devcluster(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run([str(DEVCLUSTER), *words], env=self.environment, capture_output=True, text=True)

    def tried(self, line: str) -> subprocess.CompletedProcess:
        return self.devcluster("root", RELEASE, "--", "env", "DEBIAN_FRONTEND=noninteractive", "bash", "-c", line)

    def run(self, line: str) -> str:
        done = self.tried(line)
        assert done.returncode == 0, f"{line}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout + done.stderr


def lower_layer() -> str:
    """The root in which this generation's suites are built, with what building packages needs."""
    done = subprocess.run([str(DEVCLUSTER), "root", RELEASE, "--", str(ROOT / "contrib/setup/install-packages"), "build", "package", "cluster"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return subprocess.run([str(DEVCLUSTER), "root", RELEASE], capture_output=True, text=True, check=True).stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def machine():
    lower = lower_layer()
    if lower == "/":
        pytest.skip("this machine's own release has no root of its own to lay packages over")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="aml-dist-schedmd-", dir="/var/tmp"))
    folder.chmod(0o755)
    machine = Machine(folder)
    for name in ("upper", "work"):
        (folder / name).mkdir()
    machine.root.mkdir(parents=True)
    options = f"lowerdir={lower},upperdir={folder}/upper,workdir={folder}/work"
    if subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, machine.root]).returncode != 0:
        shutil.rmtree(folder)
        pytest.skip("this machine has no overlay file systems")
    try:
        machine.run(f"{ROOT}/tests/installation/make_schedmd_packages {folder}/slurm")
        machine.run("apt-get purge -y -qq 'slurm-*' slurmctld slurmd 'libslurm*' 2>&1")
        machine.run(f"dpkg -i {folder}/slurm/*.deb 2>&1")
        yield machine
    finally:
        machine.devcluster("stop", "--name", "schedmd")
        subprocess.run(["umount", machine.root], check=True)
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def built(machine):
    """Built there, against slurm-smd-dev; without optimisation, which changes nothing here."""
    machine.run(f"DEB_BUILD_OPTIONS='noopt noautodbgsym parallel=2' DEB_CXXFLAGS_APPEND=-g0 DEB_CFLAGS_APPEND=-g0 "
                f"{ROOT}/contrib/packaging/build-deb {machine.packages}")
    (package,) = machine.packages.glob("aml-dist-slurm*.deb")
    return package


def test_the_package_has_schedmds_name_and_needs_its_slurm(machine, built):
    year, month = SLURM.split(".")
    assert built.name.startswith(PACKAGE + "_")
    needs = machine.run(f"dpkg-deb -f {built} Depends")
    assert f"slurm-smd (>= {SLURM}), slurm-smd (<< {year}.{int(month) + 1:02}~)" in needs and "slurm-wlm" not in needs
    files = machine.run(f"dpkg-deb -c {built}")
    assert re.search(r"/usr/lib/[^/]+/slurm/spank_aml_dist\.so", files) and "slurm-wlm" not in files


def test_it_installs_and_a_step_runs(machine, built):
    machine.run(f"apt-get install -y -qq --no-install-recommends {built} 2>&1")
    file = machine.root / "etc/slurm/plugstack.conf.d/aml-dist.conf"
    assert "required spank_aml_dist.so" in file.read_text().splitlines()
    started = machine.devcluster("start", "--release", RELEASE, "--name", "schedmd", "--nodes", "2", "--plugstack", str(file))
    assert started.returncode == 0, started.stderr
    done = machine.devcluster("run", "--name", "schedmd", "--", "timeout", "60", "srun", "-N2", "-n4", "--aml-dist=pytorch",
                              "bash", "-c", "echo $RANK of $WORLD_SIZE")
    assert sorted(done.stdout.splitlines()) == [f"{rank} of 4" for rank in range(4)], done
    assert machine.devcluster("stop", "--name", "schedmd").returncode == 0


def test_another_slurm_under_the_plugin_is_refused(machine, built):
    later = " ".join(f"{machine.folder}/slurm/later/{name}_99.05.1-1.deb" for name in NAMES)
    done = machine.tried(f"apt-get install -y --no-remove {later} 2>&1")
    assert done.returncode != 0 and PACKAGE in done.stdout, done.stdout
    installed = machine.run("dpkg-query -W -f '${Version}' slurm-smd")
    assert installed.startswith(SLURM), "the cluster stays as it is"


def test_the_package_for_debians_slurm_is_refused_here(machine, built):
    tree = machine.folder / "other"
    subprocess.run(["dpkg-deb", "-R", built, tree], check=True)
    control = tree / "DEBIAN/control"
    control.write_text(control.read_text().replace("slurm-smd (", "slurm-wlm-basic-plugins (").replace(PACKAGE, f"aml-dist-slurm{SLURM}"))
    subprocess.run(["dpkg-deb", "-b", tree, machine.folder / "other.deb"], check=True, capture_output=True)
    done = machine.tried(f"apt-get install -y --no-remove {machine.folder}/other.deb 2>&1")
    assert done.returncode != 0 and "slurm-wlm-basic-plugins" in done.stdout, done.stdout


def test_removing_takes_the_line_along(machine, built):
    machine.run(f"apt-get remove -y -qq {PACKAGE} 2>&1")
    assert not (machine.root / "etc/slurm/plugstack.conf.d/aml-dist.conf").exists()
