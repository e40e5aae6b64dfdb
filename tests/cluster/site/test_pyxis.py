"""With the real pyxis and enroot, where they have been built (tests/cluster/site/build-pyxis). What a stand-in shows everywhere:
test_containers.py."""

import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest
from cluster import readable_copy
from test_containers import IMAGE, plugstack

BUILT = pathlib.Path(os.environ.get("AMLDIST_PYXIS", "/nowhere"))
NODES = ("node1", "node2")
SHOW = "sh -c 'echo inside=$INSIDE $RANK of $WORLD_SIZE local $LOCAL_RANK at $MASTER_ADDR'"


@pytest.fixture(scope="module")
def image():
    """A squashed image of busybox, made for one process."""
    busybox = shutil.which("busybox")
    if not busybox or not shutil.which("mksquashfs"):
        pytest.skip("busybox or mksquashfs is not installed")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="aml-dist-pyxis-", dir="/var/tmp"))
    folder.chmod(0o755)
    for name in ("bin", "etc", "proc", "dev", "sys", "tmp", "run", "root", "usr", "var", "lib", "home"):
        (folder / "tree" / name).mkdir(parents=True)
    shutil.copy(busybox, folder / "tree/bin/busybox")
    for name in ("sh", "env", "cat", "ls", "mkdir", "sleep", "true"):
        (folder / "tree/bin" / name).symlink_to("busybox")
    (folder / "tree/etc/environment").write_text("".join(f"{name}={value}\n" for name, value in {**IMAGE, "PATH": "/bin"}.items()))
    for name, line in (("passwd", "root:x:0:0::/root:/bin/sh\n"), ("group", "root:x:0:\n")):
        (folder / "tree/etc" / name).write_text(line)
    subprocess.run(["mksquashfs", folder / "tree", folder / "image.sqsh", "-quiet", "-no-progress"], check=True, capture_output=True)
    yield folder / "image.sqsh"
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def pyxis(cluster, image):
    """The line of plugstack.conf for pyxis; enroot is where slurmd finds programs."""
    if not (BUILT / "spank_pyxis.so").is_file():
        pytest.skip("AMLDIST_PYXIS names no folder with the real pyxis and enroot (tests/cluster/site/build-pyxis)")
    for node in NODES:
        done = cluster.run(f"mkdir -p /tmp/pyxis && mount --bind {BUILT}/enroot/bin /usr/local/bin", on=node)
        assert done.status == 0, str(done)
    yield f"required {readable_copy(BUILT / 'spank_pyxis.so')} runtime_path=/tmp/pyxis"
    for node in NODES:
        cluster.run("umount /usr/local/bin", on=node)


@pytest.fixture
def after_pyxis(cluster, pyxis):
    """The order that the administrator guide asks for."""
    with plugstack(cluster, pyxis, f"required {os.environ['AMLDIST_PLUGIN']}"):
        yield


def step(image: pathlib.Path, *words: str, tasks: int = 4) -> str:
    return f"srun -w {','.join(NODES)} -N2 -n{tasks} --ntasks-per-node={tasks // 2} --container-image={image} --no-container-mount-home {' '.join(words)}"


def test_each_task_has_its_own_numbers_inside(cluster, image, addresses, after_pyxis):
    done = cluster.run(step(image, "--aml-dist=pytorch", SHOW))
    assert sorted(line for line in done.out.splitlines() if line.startswith("inside")) == [
        f"inside=yes {rank} of 4 local {rank % 2} at {addresses['node1']}" for rank in range(4)], str(done)


def test_without_the_option_the_image_has_its_own(cluster, image, after_pyxis):
    done = cluster.run(step(image, SHOW))
    assert done.out.splitlines() == ["inside=yes 0 of 1 local 0 at localhost"] * 4, str(done)


def test_before_pyxis_the_image_wins(cluster, image, pyxis):
    """Why the order matters."""
    with plugstack(cluster, f"required {os.environ['AMLDIST_PLUGIN']}", pyxis):
        done = cluster.run(step(image, "--aml-dist=pytorch", SHOW))
    assert done.out.splitlines() == ["inside=yes 0 of 1 local 0 at localhost"] * 4, str(done)


def test_the_library_comes_in_by_a_mount(cluster, image, after_pyxis):
    library = pathlib.Path(os.environ["AMLDIST_TOOL"]).parent
    done = cluster.run(step(image, f"--container-mounts={library}:/opt/aml-dist:ro", "--aml-dist=pytorch", "ls /opt/aml-dist/aml-dist", tasks=2))
    assert done.out.splitlines() == ["/opt/aml-dist/aml-dist"] * 2, str(done)


def test_a_failure_inside_is_told(cluster, image, after_pyxis):
    done = cluster.run(step(image, "--aml-dist=pytorch", "sh -c 'exit $((RANK * 7))'", tasks=2))
    told = [line for line in done.own_lines() if "first failure: rank 1" in line and "exit status 7" in line]
    assert done.status == 7 and len(told) == 1, str(done)
