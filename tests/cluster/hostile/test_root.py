"""docs/root.md says all that the plugin touches with root's rights: files, sockets, processes, signals. Each call of the kernel with
the plugin on its stack, in steps of each kind, has a line of root_touches.txt. (Variables: abi.variables_of_root.)"""

import pathlib
import shutil

import pytest
import root_touches
from cluster import Cluster
from conftest import PLUGIN
from system_calls import of_slurmstepd, recorded

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="no strace (contrib/setup/install-packages test)")

STEPS = {
    "pytorch": "-w node[1-2] -N2 -n4 --aml-dist=pytorch sh -c 'sleep 0.5; exit $RANK'",
    "per-node": "-w node[1-2] -N2 -n2 --aml-dist=pytorch,launch=per-node true",
    "hang": "-w node[1-2] -N2 -n4 --aml-dist=mpi,trace,hang=1,rdma=prefer,health=prefer sleep 4",
    "stop": "-w node[1-2] -N2 -n2 --aml-dist=pytorch,stop=60@USR1 sleep 2",
    "servers": "-w node[1-2] -N2 -n4 --aml-dist=tensorflow,worker_count=2,parameter_server_count=2 sleep 1",
    "heterogeneous": "-w node1 -N1 -n2 --aml-dist=jax true : -w node2 -N1 -n1 --aml-dist=jax true",
    "refused": "-w node[1-2] -N2 -n2 --aml-dist=pytorch,rdma=require true",
}


@pytest.fixture(scope="module")
def with_site_file(cluster: Cluster):
    folder = pathlib.Path(cluster.devcluster("conf").out.strip()).parent
    file = folder / "site.conf"
    file.write_text("port_range=20000-29999\n")
    file.chmod(0o644)
    assert cluster.devcluster("plugin", PLUGIN, f"config={file}").status == 0
    yield
    assert cluster.devcluster("plugin", PLUGIN).status == 0
    file.unlink()


def touches(log: pathlib.Path) -> set[str]:
    found = (root_touches.touch_of(call, str(pathlib.Path(PLUGIN).parent))
             for call in of_slurmstepd(log.read_text(errors="replace")) if call.of_plugin and call.user == 0)
    return {each for each in found if each}


@pytest.mark.usefixtures("with_site_file")
@pytest.mark.parametrize("step", STEPS)
def test_root_touches_what_the_page_says(cluster, workdir, step):
    log = workdir / "calls"
    with recorded(cluster, "node1", log, stacks=True):
        done = cluster.run(f"srun {STEPS[step]}", user="alice")
    seen = touches(log)
    assert {"read SITE-FILE", "send a datagram to srun", "look up /proc/self/ns/net"} <= seen or step == "refused", (seen, str(done))
    new = {touch for touch in seen if not any(pattern.fullmatch(touch) for pattern, _, _ in root_touches.listed())}
    assert new == set(), f"not in {root_touches.LIST.name}: {new}"
