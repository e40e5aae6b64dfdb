"""The Debian packages in a root of their own: built there, installed, tried, upgraded, removed, purged.

Tests build on each other in this order, as an administrator would go. Run by tests/run-packages, which names the release.
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
PLUGIN_PACKAGE = f"aml-dist-slurm{SLURM}"
LINE = "required spank_aml_dist.so"


class Machine:
    """A Debian with Slurm and nothing of ours, and the packages in a folder that it sees."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.packages = folder / "packages"
        self.roots = folder / "roots"
        self.environment = {**os.environ, "DEVCLUSTER_ROOTS": str(self.roots)}

    def devcluster(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run([str(DEVCLUSTER), *words], env=self.environment, capture_output=True, text=True, timeout=600)

    def run(self, line: str) -> str:
        done = self.devcluster("root", RELEASE, "--", "env", "DEBIAN_FRONTEND=noninteractive", "bash", "-c", line)
        assert done.returncode == 0, f"{line}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout + done.stderr

    def install(self, *names: str) -> str:
        files = " ".join(f"{self.packages}/{name}_[0-9]*.deb" for name in names)
        return self.run(f"apt-get update -qq; apt-get install -y -qq --no-install-recommends {files} 2>&1")

    def ours(self) -> list[str]:
        """Files that any of the packages could have left."""
        found = self.run("find /etc /usr /var/lib -name '*aml-dist*' -o -name '*amldist*' -o -name '*aml_dist*'")
        return sorted(found.split())

    @property
    def plugstack(self) -> pathlib.Path:
        return self.roots / RELEASE / "etc/slurm/plugstack.conf.d/aml-dist.conf"


def build_packages(folder: pathlib.Path) -> None:
    """Where the suites of this generation are built, so that the machine stays bare."""
    for command in (["contrib/setup/install-packages", "build", "package"], ["contrib/packaging/build-deb", str(folder)]):
        done = subprocess.run([str(DEVCLUSTER), "root", RELEASE, "--", str(ROOT / command[0]), *command[1:]],
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


@pytest.fixture(scope="module")
def machine():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="aml-dist-installation-", dir="/var/tmp"))
    folder.chmod(0o755)
    machine = Machine(folder)
    if built := os.environ.get("AMLDIST_TEST_PACKAGES"):
        shutil.copytree(built, machine.packages)
    else:
        machine.packages.mkdir()
        build_packages(machine.packages)
    yield machine
    machine.devcluster("stop", "--name", "installation")
    shutil.rmtree(folder)


def test_lintian_has_nothing_to_say(machine):
    done = subprocess.run([str(DEVCLUSTER), "root", RELEASE, "--", "bash", "-c",
                           f"lintian --allow-root --fail-on error,warning {machine.packages}/*.changes"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_plugin_needs_its_own_slurm(machine):
    needs = machine.run(f"dpkg-deb -f {machine.packages}/{PLUGIN_PACKAGE}_*.deb Depends")
    year, month = SLURM.split(".")
    assert f"slurm-wlm-basic-plugins (>= {SLURM})" in needs
    assert f"slurm-wlm-basic-plugins (<< {year}.{int(month) + 1:02}~)" in needs
    assert "libstdc++" not in needs, "the C++ runtime is inside"


def test_installing_makes_it_active(machine):
    machine.install(PLUGIN_PACKAGE)
    assert LINE in machine.plugstack.read_text().splitlines()
    assert "include /etc/slurm/plugstack.conf.d/*.conf" in machine.run("cat /etc/slurm/plugstack.conf")


def test_a_first_job_runs(machine):
    started = machine.devcluster("start", "--release", RELEASE, "--name", "installation", "--nodes", "2",
                                 "--plugstack", str(machine.plugstack))
    assert started.returncode == 0, started.stderr
    done = machine.devcluster("run", "--name", "installation", "--user", "alice", "--env-clean", "--", "timeout", "60",
                              "srun", "-N2", "-n4", "--aml-dist=pytorch", "bash", "-c", "echo $RANK of $WORLD_SIZE")
    assert sorted(done.stdout.splitlines()) == [f"{rank} of 4" for rank in range(4)], done.stdout + done.stderr
    assert machine.devcluster("stop", "--name", "installation").returncode == 0


def test_tools_library_and_headers_work(machine):
    machine.install("aml-dist", "libamldist0", "libamldist-dev", "aml-dist-doc")
    assert machine.run("aml-dist --version").startswith("aml-dist ")
    assert "node1" in machine.run("aml-dist explain --aml-dist=pytorch --nodelist 'node[1-2]' --tasks-per-node 2")
    assert machine.run("test -x /usr/share/aml-dist/devcluster/lib/machine-init.sh && "
                       "/usr/share/aml-dist/devcluster/devcluster --version").startswith("devcluster ")
    assert "libamldist.so.0 (" in machine.run("ldconfig -p")


def test_an_upgrade_keeps_the_administrators_file(machine):
    text = machine.plugstack.read_text().replace(LINE, LINE + " port_range=21000-21999")
    machine.plugstack.write_text(text)
    machine.run(f"apt-get install -y -qq --reinstall {machine.packages}/{PLUGIN_PACKAGE}_[0-9]*.deb 2>&1")
    assert machine.plugstack.read_text() == text


def test_removing_takes_the_line_out_of_plugstack(machine):
    """A required line without its file would stop every srun."""
    machine.run(f"apt-get remove -y -qq {PLUGIN_PACKAGE} 2>&1")
    assert not machine.plugstack.exists()
    assert machine.plugstack.with_name("aml-dist.conf.removed").exists()
    assert machine.run("find /usr -name spank_aml_dist.so") == ""


def test_installing_again_brings_the_file_back(machine):
    machine.install(PLUGIN_PACKAGE)
    assert LINE + " port_range=21000-21999" in machine.plugstack.read_text().splitlines()


def test_another_file_with_the_line_is_told(machine):
    stack = machine.roots / RELEASE / "etc/slurm/plugstack.conf"
    before = stack.read_text()
    stack.write_text(before + LINE + "\n")
    said = machine.run(f"apt-get remove -y -qq {PLUGIN_PACKAGE} 2>&1")
    assert "aml-dist: /etc/slurm/plugstack.conf still names spank_aml_dist.so" in said, said
    stack.write_text(before)


def test_purging_leaves_nothing(machine):
    machine.run(f"apt-get purge -y -qq {PLUGIN_PACKAGE} aml-dist libamldist0 libamldist-dev aml-dist-doc 2>&1")
    assert machine.ours() == []


def test_apt_refuses_the_plugin_of_another_slurm(machine):
    """The package's own dependency, not Slurm, is the first guard."""
    folder = machine.packages / "other"
    folder.mkdir()
    (package,) = machine.packages.glob(f"{PLUGIN_PACKAGE}_[0-9]*.deb")
    subprocess.run(["dpkg-deb", "-R", package, folder / "tree"], check=True)
    control = folder / "tree/DEBIAN/control"
    control.write_text(re.sub(r"slurm-wlm-basic-plugins \(>= [0-9.]+\)", "slurm-wlm-basic-plugins (>= 99.05)",
                              control.read_text()))
    subprocess.run(["dpkg-deb", "-b", folder / "tree", folder / "other.deb"], check=True, capture_output=True)
    done = machine.devcluster("root", RELEASE, "--", "apt-get", "install", "-y", str(folder / "other.deb"))
    assert done.returncode != 0 and "slurm-wlm-basic-plugins" in done.stdout + done.stderr
