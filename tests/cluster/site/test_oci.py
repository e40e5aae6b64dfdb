"""Slurm's own containers (srun --container) with runc and with crun: the image's environment gives way to the step's."""

import json
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest
from cluster import Cluster
from conftest import NAME, PLUGIN, RELEASE


# slurmstepd keeps the cgroups.
PROGRAMS = {"runc": "runc", "crun": "crun --cgroup-manager=disabled"}


def oci_conf(program: str) -> str:
    """Both programs take the same words."""
    return "".join(f'RunTime{name}="{PROGRAMS[program]} --root=/tmp/{program}-%n-%u {words} %n.%u.%j.%s.%t"\n' for name, words in (
        ("Query", "state"), ("Kill", "kill -a"), ("Delete", "delete --force"), ("Run", "run --bundle %b")))


@pytest.fixture(scope="module")
def bundle():
    """A bundle with busybox, whose image was made for one process."""
    busybox = shutil.which("busybox")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="aml-dist-oci-", dir="/var/tmp"))
    folder.chmod(0o755)
    # Slurm mounts something at /var/run/slurm; two runc that both make that folder in one image can fail.
    for name in ("bin", "proc", "dev", "lib", "var/run/slurm"):
        (folder / "rootfs" / name).mkdir(parents=True)
    static = busybox and subprocess.run(["objdump", "-p", busybox], capture_output=True, text=True)
    if not static or "NEEDED" in static.stdout:
        shutil.rmtree(folder)
        pytest.skip("busybox-static is not installed")
    shutil.copy(busybox, folder / "rootfs/bin/busybox")
    for name in ("sh", "env", "ls"):
        (folder / "rootfs/bin" / name).symlink_to("busybox")
    (folder / "config.json").write_text(json.dumps({
        "ociVersion": "1.0.0",
        "process": {"terminal": False, "user": {"uid": 0, "gid": 0}, "args": ["/bin/env"], "cwd": "/",
                    "env": ["RANK=0", "WORLD_SIZE=1", "IMAGE=yes", "PATH=/bin"]},
        "root": {"path": "rootfs", "readonly": True},
        "mounts": [{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]},
                   {"destination": "/proc", "type": "proc", "source": "proc"},
                   {"destination": "/lib", "type": "bind", "source": str(pathlib.Path(PLUGIN).parent), "options": ["bind", "ro"]}],
        "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}]}}))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module", params=PROGRAMS)
def oci(cluster, bundle, request):
    """Two nodes with an oci.conf, where the program can work at all."""
    program = request.param
    if cluster.run(f"{program} --version").status != 0:
        pytest.skip(f"{program} is not installed in the root of this Slurm")
    started = Cluster(f"{NAME}-oc"[-16:].lstrip("-"), 2)
    done = started.devcluster("start", "--nodes", "2", "--restart", "--plugin", PLUGIN, *(["--release", RELEASE] if RELEASE else []))
    assert done.status == 0, str(done)
    (pathlib.Path(started.devcluster("conf").out.strip()).parent / "oci.conf").write_text(oci_conf(program))
    for node in ("node1", "node2"):  # crun refuses a machine that has both versions of cgroups: the nodes see one
        started.run("mountpoint -q /sys/fs/cgroup/unified && mount -t tmpfs none /sys/fs/cgroup/unified", on=node)
    alone = started.run(f"{PROGRAMS[program]} --root=/tmp/{program}-try run --bundle {bundle} try", on="node1")
    if alone.status != 0:
        assert started.devcluster("stop").status == 0
        pytest.skip(f"{program} cannot work here: " + alone.err.strip()[-200:])
    yield started
    assert started.devcluster("stop").status == 0


@pytest.fixture
def heard(oci):
    """Slurm 23.02 on."""
    release = tuple(int(part) for part in re.search(r"(\d+)\.(\d+)", oci.run("srun --version").out).groups())
    return release >= (23, 2)


def test_each_task_has_its_own_numbers_inside(oci, bundle, heard):
    done = oci.run(f"srun -N2 -n4 --label --container={bundle} --aml-dist=pytorch /bin/env" if heard else
                   f"srun -N2 -n2 --container={bundle} --aml-dist=pytorch /bin/env")
    if not heard:
        assert done.status != 0 and "RANK=0" not in done.out, str(done)
        assert any("before 23.02 Slurm gives a container no variable" in line for line in done.own_lines()), str(done)
        return
    assert done.status == 0, str(done)
    tasks = {rank: dict(line.partition("=")[::2] for own, line in re.findall(r"^(\d): (.*)$", done.out, re.MULTILINE) if own == rank)
             for rank in "0123"}
    for rank, env in tasks.items():
        assert (env["RANK"], env["WORLD_SIZE"], env["IMAGE"]) == (rank, "4", "yes")
    assert len({env["MASTER_ADDR"] for env in tasks.values()}) == 1
    assert len({env["AMLDIST_STEP_SECRET"] for env in tasks.values()}) == 1


def test_without_the_option_the_image_is_left_alone(oci, bundle):
    done = oci.run(f"srun -N1 -n1 --container={bundle} /bin/env")
    assert done.status == 0 and "RANK=0" in done.out.split() and "AMLDIST" not in done.out and not done.own_lines(), str(done)


def test_a_first_failure_inside_is_told(oci, bundle, heard):
    if not heard:
        pytest.skip("such a step is refused")
    done = oci.run(f"srun -N2 -n4 --container={bundle} --aml-dist=pytorch /bin/sh -c 'if [ $RANK = 2 ]; then exit 7; fi'")
    assert "first failure: rank 2" in done.err and "exit status 7" in done.err, str(done)


def test_the_library_is_inside_by_a_mount(oci, bundle):
    """The bundle's config.json binds the folder of the host's libraries, as cloud.md has it."""
    done = oci.run(f"srun -N1 -n1 --container={bundle} /bin/ls /lib")
    assert done.status == 0 and pathlib.Path(PLUGIN).name in done.out.split(), str(done)
