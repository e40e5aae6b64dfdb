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
PACKAGES = [PLUGIN_PACKAGE, "aml-dist", "libamldist0", "libamldist-mpi", "libamldist-dev", "python3-amldist", "aml-dist-doc"]
OLDER = "0.1.0~0"  # of packages; the plugin in them is that of 0.1.0


class Machine:
    """A Debian with Slurm and nothing of ours, and the packages in a folder that it sees."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.packages = folder / "packages"
        self.older = folder / "older"
        self.roots = folder / "roots"
        self.environment = {**os.environ, "DEVCLUSTER_ROOTS": str(self.roots)}

    def devcluster(self, *words: str) -> subprocess.CompletedProcess:
        return subprocess.run([str(DEVCLUSTER), *words], env=self.environment, capture_output=True, text=True, timeout=600)

    def run(self, line: str) -> str:
        done = self.devcluster("root", RELEASE, "--", "env", "DEBIAN_FRONTEND=noninteractive", "bash", "-c", line)
        assert done.returncode == 0, f"{line}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout + done.stderr

    def install(self, *names: str, options: str = "", older: bool = False) -> str:
        files = " ".join(f"{self.older if older else self.packages}/{name}_[0-9]*.deb" for name in names)
        return self.run(f"apt-get update -qq; apt-get install -y -qq --no-install-recommends {options} {files} 2>&1")

    def versions(self) -> dict[str, str]:
        """Of our packages that are installed."""
        listed = self.run("dpkg-query -W -f '${db:Status-Status} ${Package} ${Version}\n' 'aml-dist*' 'libamldist*' python3-amldist")
        return dict(line.split()[1:] for line in listed.splitlines() if line.startswith("installed "))

    def in_cluster(self, line: str, *where: str) -> str:
        done = self.devcluster("run", "--name", "installation", *where, "--env-clean", "--", "timeout", "60", "bash", "-c", line)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

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


def build_earlier(folder: pathlib.Path) -> pathlib.Path | None:
    """The plugin of 0.1.0; None in a checkout without history, and for a Slurm that it was not made for."""
    done = subprocess.run([str(ROOT / "tests/build-earlier"), str(folder), RELEASE], capture_output=True, text=True)
    assert done.returncode in (0, 3), done.stderr
    return pathlib.Path(done.stdout.strip()) if done.returncode == 0 else None


def make_older(package: pathlib.Path, folder: pathlib.Path, plugin: pathlib.Path | None) -> None:
    """The same under a lower version, with an earlier plugin, and with a sample and a page that later ones do not have."""
    tree = folder / "tree"
    subprocess.run(["dpkg-deb", "-R", package, tree], check=True)
    control = tree / "DEBIAN/control"
    version = re.search(r"^Version: (.*)$", control.read_text(), re.M)[1]
    control.write_text(control.read_text().replace(version, OLDER))
    if package.name.startswith(PLUGIN_PACKAGE):
        sample = tree / "etc/slurm/plugstack.conf.d/aml-dist.conf"
        sample.write_text("# As it was.\n" + sample.read_text())
        if plugin:
            # The other is a link to it, where Debian's Slurm looks.
            (installed,) = [file for file in tree.glob("usr/lib/**/spank_aml_dist.so") if not file.is_symlink()]
            shutil.copyfile(plugin, installed)
        (tree / "usr/share/man/man8/aml-dist-gone.8.gz").write_bytes(b"")
    target = folder / package.name.replace(version, OLDER)
    subprocess.run(["dpkg-deb", "-Zgzip", "-z1", "-b", tree, target], check=True, capture_output=True)
    shutil.rmtree(tree)


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
    machine.older.mkdir()
    plugin = build_earlier(folder / "earlier")
    for name in PACKAGES:
        (package,) = machine.packages.glob(f"{name}_[0-9]*.deb")
        make_older(package, machine.older, plugin)
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
    """An older release, to be upgraded below."""
    machine.install(*PACKAGES, older=True)
    assert machine.versions() == dict.fromkeys(PACKAGES, OLDER)
    assert LINE in machine.plugstack.read_text().splitlines()
    assert "include /etc/slurm/plugstack.conf.d/*.conf" in machine.run("cat /etc/slurm/plugstack.conf")


def test_a_first_job_runs(machine):
    started = machine.devcluster("start", "--release", RELEASE, "--name", "installation", "--nodes", "2",
                                 "--plugstack", str(machine.plugstack))
    assert started.returncode == 0, started.stderr
    said = machine.in_cluster("srun -N2 -n4 --aml-dist=pytorch bash -c 'echo $RANK of $WORLD_SIZE'", "--user", "alice")
    assert sorted(said.splitlines()) == [f"{rank} of 4" for rank in range(4)], said


def test_an_upgrade_while_a_job_runs(machine):
    """From 0.1.0 to this tree. Its step keeps the file that it began with, its next step has the new one, and the administrator's file stays.

    --force-confold as unattended upgrades have it: without it dpkg asks which of two changed files is wanted.
    """
    text = machine.plugstack.read_text().replace(LINE, LINE + " port_range=21000-21999")
    machine.plugstack.write_text(text)
    shared = pathlib.Path(machine.in_cluster("mktemp -d /var/tmp/aml-dist-upgrade-XXXXXX").strip())
    try:
        script = shared / "job.sh"
        step = f"srun --aml-dist=pytorch bash -c 'echo STEP $RANK of $WORLD_SIZE; until [[ -e {shared}/FILE ]]; do sleep 0.2; done'"
        script.write_text("#!/bin/bash\n" + "\n".join(step.replace("STEP", name).replace("FILE", name) for name in ("old", "new")))
        out = shared / "out"
        machine.in_cluster(f"sbatch -N2 -n4 --output={out} {script}; until [[ $(grep -c old {out}) = 4 ]]; do sleep 0.1; done")
        assert mapped(machine, "slurmstepd") == {"/usr/lib/slurm/spank_aml_dist.so"}
        machine.install(*PACKAGES, options="-o Dpkg::Options::=--force-confold")
        assert mapped(machine, "slurmstepd") == {"/usr/lib/slurm/spank_aml_dist.so (deleted)"}
        machine.in_cluster(f"touch {shared}/old; until [[ $(grep -c new {out}) = 4 ]]; do sleep 0.1; done")
        assert "/usr/lib/slurm/spank_aml_dist.so" in mapped(machine, "slurmstepd")
        machine.in_cluster(f"touch {shared}/new; while squeue -h | grep -q .; do sleep 0.1; done")
        assert sorted(out.read_text().splitlines()) == sorted(f"{name} {rank} of 4" for name in ("old", "new") for rank in range(4))
        assert "drain" not in machine.in_cluster("sinfo -h -o %T"), "no node is lost"
    finally:
        shutil.rmtree(shared)
    assert machine.devcluster("stop", "--name", "installation").returncode == 0
    assert machine.plugstack.read_text() == text


def mapped(machine: Machine, program: str) -> set[str]:
    """The plugin's file as the processes of this name on node1 have it mapped."""
    lines = machine.in_cluster(f"for each in $(grep -lx {program} /proc/[0-9]*/comm); do "
                               "grep -h spank_aml_dist ${each%comm}maps; done", "--on", "node1")
    return {re.sub(r"/(x86_64|aarch64)-linux-gnu/", "/", line.split(maxsplit=5)[5]) for line in lines.splitlines()}


def test_the_upgrade_was_whole(machine):
    versions = machine.versions()
    assert set(versions) == set(PACKAGES) and OLDER not in versions.values(), versions
    assert machine.run("find /usr -name '*aml-dist-gone*'") == "", "what the new release does not have is gone"
    assert machine.run("dpkg --audit") == ""
    # dpkg's status says that something differs; what it is, is asked here.
    changed = machine.run(f"dpkg --verify {' '.join(PACKAGES)} || true").split()
    assert changed == ["??5??????", "c", "/etc/slurm/plugstack.conf.d/aml-dist.conf"], "only the administrator's file differs"


def test_tools_library_and_headers_work(machine):
    assert machine.run("aml-dist --version").startswith("aml-dist ")
    assert "node1" in machine.run("aml-dist explain --aml-dist=pytorch --nodelist 'node[1-2]' --tasks-per-node 2")
    assert machine.run("test -x /usr/share/aml-dist/devcluster/lib/machine-init.sh && "
                       "/usr/share/aml-dist/devcluster/devcluster --version").startswith("devcluster ")
    assert "libamldist.so.0 (" in machine.run("ldconfig -p")
    assert "not found" not in machine.run("ldd /usr/lib/*/aml-dist/libamldist_mpi.so"), "its Open MPI came with it"


def test_removing_takes_the_line_out_of_plugstack(machine):
    """A required line without its file would stop every srun."""
    machine.run(f"apt-get remove -y -qq {PLUGIN_PACKAGE} 2>&1")
    assert not machine.plugstack.exists()
    assert (machine.plugstack.parents[1] / "aml-dist.conf.removed").exists(), "outside of the folder: some sites include all its files"
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
    machine.run(f"apt-get purge -y -qq {' '.join(PACKAGES)} 2>&1")
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
