"""Beside pyxis: a stand-in plugin overwrites the environment and changes the namespaces in its task_init."""

import contextlib
import os
import pathlib
import shutil

import pytest
from cluster import readable_copy
from oracle import check_master_is_on_host_of_rank_zero, check_pytorch

SOURCE = pathlib.Path(__file__).resolve().parent / "container_plugin.c"
# As images have it that were made for one process.
IMAGE = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "NODE_RANK": "0",
         "MASTER_ADDR": "localhost", "MASTER_PORT": "29500", "INSIDE": "yes"}


@pytest.fixture(scope="module")
def container(cluster, tmp_path_factory):
    """The stand-in, compiled where its Slurm is, and the folder of its container."""
    folder = readable_copy(SOURCE).parent / "container"
    (folder / "etc").mkdir(parents=True)
    (folder / "etc/hosts").write_text("127.0.0.1 localhost\n")
    (folder / "environment").write_text("".join(f"{name}={value}\n" for name, value in IMAGE.items()))
    for each in (folder, folder / "etc"):
        each.chmod(0o755)
    built = cluster.run(f"cc -shared -fPIC -o {folder}/container.so {folder.parent / SOURCE.name}")
    assert built.status == 0, str(built)
    yield folder
    shutil.rmtree(folder)


@contextlib.contextmanager
def plugstack(cluster, *lines: str):
    """plugstack.conf with these lines, in this order."""
    path = pathlib.Path(cluster.devcluster("conf").out.strip()).parent / "plugstack.conf"
    before = path.read_text()
    path.write_text("".join(line + "\n" for line in lines))
    try:
        yield
    finally:
        path.write_text(before)


def lines_of(container) -> dict[str, str]:
    return {"container": f"required {container}/container.so {container}",
            "ours": f"required {os.environ['AMLDIST_PLUGIN']}"}


@pytest.fixture(scope="module")
def namespaces(cluster, container):
    """The stand-in must work here, or the tests show nothing."""
    with plugstack(cluster, lines_of(container)["container"]):
        done = cluster.run("srun -N1 -n1 bash -c 'echo inside=$INSIDE; cat /etc/hosts; ls /run'")
    if "container: unshare" in done.err or "container: mount" in done.err:
        pytest.skip(f"the kernel refuses user namespaces: {done.err.strip()}")
    assert done.out == "inside=yes\n127.0.0.1 localhost\n", str(done)


@pytest.mark.parametrize("user", ["root", "alice"])
def test_after_pyxis_every_variable_is_ours(cluster, container, addresses, namespaces, user):
    """The order that the administrator guide asks for. The container's /etc knows no node: the address is found before."""
    lines = lines_of(container)
    with plugstack(cluster, lines["container"], lines["ours"]):
        tasks = cluster.tasks("-N3 -n5 --export=ALL --aml-dist=pytorch", user)
    check_pytorch(tasks)
    check_master_is_on_host_of_rank_zero(tasks, addresses)


def test_before_pyxis_the_image_wins(cluster, container, namespaces):
    """Why the order matters: each task believes that it is alone."""
    lines = lines_of(container)
    with plugstack(cluster, lines["ours"], lines["container"]):
        tasks = cluster.tasks("-N2 -n4 --aml-dist=pytorch")
    assert [task.env["RANK"] for task in tasks] == ["0"] * 4
    assert {task.env["MASTER_ADDR"] for task in tasks} == {"localhost"}


def test_a_failure_in_a_container_is_still_told(cluster, container, namespaces):
    lines = lines_of(container)
    with plugstack(cluster, lines["container"], lines["ours"]):
        done = cluster.run("srun -N2 -n2 --aml-dist=pytorch bash -c 'exit $((RANK * 7))'")
    told = [line for line in done.own_lines() if "first failure: rank 1" in line and "exit status 7" in line]
    assert done.status == 7 and len(told) == 1, str(done)
