"""The fabric between nodes as libdist verifies it when the world is made: ranks on fabricated nodes, each in a mount
namespace of its own, with the library in memory in the place of libibverbs.

What differs between nodes, or does not arrive, must reach every rank in the same way: an error under require, sockets on
all under prefer. Without AMLDIST_RDMA nothing is looked at.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
import subprocess
import sys

import cases
import conftest
import pytest
import trees
from test_tool import LIBRARY, needs_mounts

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "collective"))
import launch  # noqa: E402

PROGRAM = conftest.TOOL.parents[1] / "lib/tests/fabric_world"
pytestmark = needs_mounts


@dataclasses.dataclass
class Rank:
    status: int
    ib_disable: str
    ucx: str
    error: str
    err: str

    def own_lines(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.startswith("aml-dist: ")]


class Site:
    """Fabricated nodes to start ranks on."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.memory = folder / "memory"
        self.memory.mkdir()
        self.port = launch.free_port()

    def start(self, rank: int, ranks: int, node: int, tree: pathlib.Path, env: dict[str, str]) -> subprocess.Popen:
        script = 'mount -t overlay -o "lowerdir=$1/sys/class:/sys/class" overlay /sys/class && exec "$2"'
        own = {"PATH": os.environ["PATH"], "RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
               "MASTER_PORT": str(self.port), "AMLDIST_NODE_NAME": f"node{node + 1}", "AMLDIST_TRACE_DIR": "off",
               "AMLDIST_LIBIBVERBS": str(LIBRARY), "FAKE_VERBS_DEVICES": "mlx5_an0,mlx5_ib0,mlx5_ib1",
               "FAKE_VERBS_SHARED": str(self.memory), **env}
        return subprocess.Popen(["unshare", "--mount", "--", "bash", "-c", script, "-", tree, PROGRAM], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=own)

    def world(self, nodes: list[trees.Node], per_node: int = 1, env: dict[str, str] | None = None,
              of_node: dict[int, dict[str, str]] | None = None) -> list[Rank]:
        """`of_node`: more variables for the ranks of single nodes."""
        started = []
        for index, node in enumerate(nodes):
            node.build(self.folder / f"node{index}")
        for rank in range(len(nodes) * per_node):
            index = rank // per_node
            started.append(self.start(rank, len(nodes) * per_node, index, self.folder / f"node{index}",
                                      (env or {}) | (of_node or {}).get(index, {})))
        return [self.outcome(process) for process in started]

    @staticmethod
    def outcome(process: subprocess.Popen) -> Rank:
        out, err = process.communicate(timeout=90)
        told, _, error = out.strip().partition(" | ")
        status, ib_disable, ucx = told.split()
        return Rank(int(status), ib_disable, ucx, error, err)


@pytest.fixture
def site(tmp_path):
    return Site(tmp_path)


def healthy(count: int) -> list[trees.Node]:
    return [cases.base() for _ in range(count)]


def other_partition() -> trees.Node:
    node = cases.base()
    for index in range(2):
        node.port(index).pkeys = {0: "0x8022", 1: "0x7fff"}
    return node


REQUIRE, PREFER = {"AMLDIST_RDMA": "require"}, {"AMLDIST_RDMA": "prefer"}


def test_healthy_nodes_make_a_world_and_nothing_is_said(site):
    ranks = site.world(healthy(3), per_node=2, env=REQUIRE)
    assert [rank.status for rank in ranks] == [0] * 6, ranks
    assert not any(rank.err for rank in ranks), ranks
    assert {rank.ib_disable for rank in ranks} == {"-"}


def test_without_the_policy_nothing_is_looked_at(site):
    ranks = site.world([cases.base(), other_partition()])
    assert [rank.status for rank in ranks] == [0, 0], ranks
    assert not any(rank.err for rank in ranks)


def test_two_partition_keys_are_an_error_on_every_rank_under_require(site):
    ranks = site.world([cases.base(), other_partition(), cases.base()], per_node=2, env=REQUIRE)
    assert all(rank.status < 0 for rank in ranks), ranks
    assert len({rank.error for rank in ranks}) == 1, "every rank says the same"
    for word in ("rdma=require", "ib.pkey", "node2", "0x0022"):
        assert word in ranks[0].error, ranks[0].error


def test_two_partition_keys_are_sockets_on_every_rank_under_prefer(site):
    ranks = site.world([cases.base(), other_partition()], per_node=2, env=PREFER)
    assert [rank.status for rank in ranks] == [0] * 4, ranks
    assert {(rank.ib_disable, rank.ucx) for rank in ranks} == {("1", "tcp,sm,self")}
    told = [line for rank in ranks for line in rank.own_lines()]
    assert len(told) == 1 and "rdma=prefer" in told[0] and "ib.pkey" in told[0] and "node2" in told[0], told


def test_a_write_that_does_not_arrive_names_both_ends(site):
    ranks = site.world(healthy(3), env=REQUIRE, of_node={1: {"FAKE_VERBS_LOSE": "1"}})
    assert all(rank.status < 0 for rank in ranks), ranks
    assert "ib.pair: node2 -> node3 over mlx5_ib0:1" in ranks[0].error, ranks[0].error
    assert "node1 -> node2" not in ranks[0].error


def test_a_port_that_went_down_since_the_launch_is_named(site):
    sick = cases.base()
    cases.FAULTS["cable out"].apply(sick, 1)
    ranks = site.world([cases.base(), sick], env=REQUIRE)
    assert all(rank.status < 0 and "node2" in rank.error and "ib.state" in rank.error for rank in ranks), ranks


def test_different_firmware_is_a_warning_told_once(site):
    older = cases.base()
    for index in range(2):
        older.devices[index].fw_ver = "28.37.1014"
    ranks = site.world([cases.base(), older], per_node=2, env=REQUIRE)
    assert [rank.status for rank in ranks] == [0] * 4, ranks
    told = [line for rank in ranks for line in rank.own_lines()]
    assert len(told) == 1 and "ib.fw" in told[0] and "node2" in told[0], told


def test_different_rates_are_a_warning_told_once(site):
    slow = cases.base()
    for index in range(2):
        slow.port(index).rate = cases.HDR
    ranks = site.world([cases.base(), slow], env=REQUIRE)
    told = [line for rank in ranks for line in rank.own_lines()]
    assert [rank.status for rank in ranks] == [0, 0], ranks
    assert len(told) == 1 and "ib.rate" in told[0] and "node2" in told[0], told


def test_different_gid_indices_are_no_error(site):
    """RoCE: the IPv4 address of one node is at another index. Each side chooses its own, and the pair connects."""
    other = trees.roce()
    for index in range(2):
        gids = trees.roce_gids(index + 9, f"ens{index}")
        other.port(index).gids = {0: gids[0], 1: gids[1], 2: gids[4], 3: gids[2], 4: gids[4], 5: gids[3]}
    devices = {"FAKE_VERBS_DEVICES": "mlx5_0,mlx5_1"}
    same = site.world([trees.roce(), trees.roce()], env=REQUIRE | devices)
    assert [rank.status for rank in same] == [0, 0], same
    site.folder = site.folder / "again"
    ranks = site.world([trees.roce(), other], env=REQUIRE | devices)
    assert [rank.status for rank in ranks] == [0, 0], ranks


def test_no_verbs_on_one_node_fails_and_does_not_hang(site):
    ranks = site.world(healthy(2), env=REQUIRE, of_node={1: {"AMLDIST_LIBIBVERBS": "/nonexistent.so"}})
    assert all(rank.status < 0 and "ib.pair" in rank.error for rank in ranks), ranks


def test_nodes_without_a_port_are_no_pass(site):
    bare = [trees.Node([]), trees.Node([])]
    assert all(rank.status < 0 and "ib.sysfs" in rank.error for rank in site.world(bare, env=REQUIRE))


def test_an_unknown_sku_is_a_failure_on_all_ranks(site):
    ranks = site.world(healthy(2), env=REQUIRE, of_node={1: {"AMLDIST_RDMA_SKU": "no-such-size"}})
    assert all(rank.status < 0 and "no-such-size" in rank.error for rank in ranks), ranks


def test_one_rank_without_the_policy_is_no_hang(site):
    """It goes on to its program, and its first call meets the others' exchange."""
    ranks = site.world(healthy(2), env=REQUIRE, of_node={1: {"AMLDIST_RDMA": "off"}})
    assert any(rank.status < 0 for rank in ranks), ranks


def test_one_node_alone_has_nothing_between_nodes(site):
    ranks = site.world(healthy(1), per_node=2, env=REQUIRE)
    assert [rank.status for rank in ranks] == [0, 0], ranks
