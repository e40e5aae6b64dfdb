"""Machines of shapes_field.py: each is well, and each fault that a node can show is named, alone and beside a second, unrelated one.

A fault says what it needs, what it changes, whether a job that requires the fabric is refused, and what the report must name."""

from __future__ import annotations

import copy
import dataclasses
import os
import random
import shutil
from collections.abc import Callable

import oracle
import pytest
import shapes
import shapes_field
import trees
from shapes import Shape
from test_corpus import ask
from trees import Device, InfiniBand

MACHINES = {shape.name: shape for shape in shapes_field.healthy()}
MELLANOX, BROADCOM, PENSANDO, INTEL = "0x15b3", "0x14e4", "0x1dd8", "0x8086"
# Pairs for each machine; AMLDIST_ALL_FAULTS: each fault with another.
PAIRS = 1000 if os.environ.get("AMLDIST_ALL_FAULTS") else 4


def fabric_of(shape: Shape) -> list[Device]:
    names = {each.rpartition(":")[0] for each in shape.fabric}
    return [device for device in shape.node.devices if device.name in names]


def first(shape: Shape) -> Device:
    return fabric_of(shape)[0]


# ---- what a fault needs

def infiniband(shape):
    return first(shape).ports[0].link_layer == InfiniBand


def roce(shape):
    return not infiniband(shape) and first(shape).vendor != "0x1ded"


def two(shape):
    return len(fabric_of(shape)) >= 2


def three(shape):
    return len(fabric_of(shape)) >= 3


def gpus(shape):
    return len(shape.node.gpus) >= 3


def nvidia(shape):
    return bool(shape.node.gpus) and shape.node.gpus[0].vendor == shapes_field.NVIDIA


def of(vendor):
    return lambda shape: two(shape) and first(shape).vendor == vendor


def told(shape):
    return bool(shape.table or shape.sku)


def with_interfaces(shape):
    return two(shape) and all(device.netdevs and not device.master for device in fabric_of(shape))


def with_links(shape):
    return three(shape) and first(shape).link[0] != "Unknown"


def in_one_subnet(shape):
    return infiniband(shape) and three(shape) and len({device.ports[0].gids[0][0][:19] for device in fabric_of(shape)}) == 1


def with_other_cards(shape):
    """Of a single card's port without a link nothing can be said: machines are sold so."""
    cards = {each.pci[:-2] for each in fabric_of(shape)}
    return told(shape) or len(cards) >= 2


# ---- what it changes

def port(**values):
    return lambda shape, device: [setattr(device.ports[0], name, copy.deepcopy(value)) for name, value in values.items()]


def card(**values):
    return lambda shape, device: [setattr(device, name, value) for name, value in values.items()]


def gpu(change):
    return lambda shape, device: change(shape.node.gpus[1])


def env(name, value):
    def change(shape, device):
        shape.env = {**shape.env, name: value(shape) if callable(value) else value}
    return change


def same(what):
    def change(shape, device):
        other = next(each for each in fabric_of(shape) if each is not device and each.ports[0].state.startswith("4"))
        if what == "address":
            device.address = other.address = "a0:88:c2:99:99:99"
        elif what == "guid":
            device.guid = other.guid
        else:
            setattr(device.ports[0], what, copy.deepcopy(getattr(other.ports[0], what)))
    return change


def one_more_kind(shape, device):
    table = device.ports[0].gids
    device.ports[0].gids = {**table, max(table) + 1: ("fd00:0000:0000:0000:0000:0000:0000:0009", "RoCE v2", "x")}


def own_address_only(shape, device):
    local, own = "fe80:0000:0000:0000:0a00:27ff:fe00:0009", "0000:0000:0000:0000:0000:ffff:a9fe:0909"
    device.ports[0].gids = {0: (local, "IB/RoCE v1", "e"), 1: (local, "RoCE v2", "e"), 2: (own, "IB/RoCE v1", "e"), 3: (own, "RoCE v2", "e")}


def without_class(shape, device):
    shape.node.after.append(lambda sys, dev: shutil.rmtree(sys / "class/infiniband_verbs"))


def lost(shape, device):
    shape.node.devices.remove(device)


@dataclasses.dataclass
class Fault:
    needs: Callable
    change: Callable
    refuses: bool = False
    names: Callable = lambda shape, device: [device.name, *device.netdevs]
    subject: str = "port"  # two faults of one subject are not unrelated


def setting(needs, name, value):
    return Fault(needs, env(name, value), True, lambda shape, device: [name], "setting")


def of_gpu(change):
    return Fault(gpus, gpu(change), names=lambda shape, device: [shape.node.gpus[1].pci], subject="GPU")


FAULTS = {
    "P_Key of another partition": Fault(in_one_subnet, port(pkeys={0: "0x8022", 1: "0x7fff"}), True),
    "a P_Key more": Fault(in_one_subnet, port(pkeys={0: "0x8018", 1: "0x7fff", 2: "0x8044"}), True),
    "P_Key 0x8000": Fault(infiniband, port(pkeys={0: "0x8000"}), True),
    "P_Key 0x8000 before another": Fault(infiniband, port(pkeys={0: "0x8000", 1: "0x7fff"}), True),
    "P_Key 0x0000": Fault(infiniband, port(pkeys={0: "0x0000"}), True),
    "MTU": Fault(with_interfaces, card(mtu="1500")),
    "half the rate": Fault(two, lambda shape, device: port(rate=f"{shape.rate // 2:.0f} Gb/sec (4X HDR)")(shape, device), True),
    "half the lanes": Fault(two, lambda shape, device: port(rate=f"{shape.rate // 2:.0f} Gb/sec (2X NDR)")(shape, device), True),
    "PCIe slower than the slot": Fault(with_links, card(link=("16.0 GT/s PCIe", "32.0 GT/s PCIe", "16", "16"))),
    "PCIe of fewer lanes": Fault(with_links, card(link=("32.0 GT/s PCIe", "32.0 GT/s PCIe", "4", "16"))),
    "a slower slot": Fault(with_links, card(link=("16.0 GT/s PCIe", "16.0 GT/s PCIe", "16", "16"))),
    "a narrower slot": Fault(with_links, card(link=("32.0 GT/s PCIe", "32.0 GT/s PCIe", "8", "8"))),
    "firmware": Fault(two, card(fw_ver="1.2.3"), names=lambda shape, device: ["1.2.3"]),
    "kinds of GIDs": Fault(lambda shape: roce(shape) and three(shape) and not shape.env, one_more_kind),
    "no interface": Fault(lambda shape: three(shape) and with_interfaces(shape), card(netdevs={})),
    "no node of memory": Fault(lambda shape: three(shape) and first(shape).numa not in ("-1", None), card(numa="-1")),
    "one LID twice": Fault(lambda shape: two(shape) and in_one_subnet(shape), same("lid")),
    "one GUID twice": Fault(two, same("guid")),
    "one GID twice": Fault(two, same("gids")),
    "one hardware address twice": Fault(with_interfaces, same("address")),
    "GPU with fewer lanes": of_gpu(lambda each: setattr(each, "link", (*each.link[:2], "4", "16"))),
    "GPU in a slower slot": of_gpu(lambda each: setattr(each, "link", ("2.5 GT/s PCIe", "16.0 GT/s PCIe", "16", "16"))),
    "GPU without a node of memory": of_gpu(lambda each: setattr(each, "numa", "-1")),
    "GPU without a driver": of_gpu(lambda each: setattr(each, "driver", None)),
    "a state that begins like another": Fault(lambda shape: True, port(state="4: ACTIVELY"), True),
    "deferred": Fault(lambda shape: True, port(state="5: ACTIVE_DEFER"), True),
    "a physical state that begins like another": Fault(lambda shape: True, port(phys_state="5: LinkUpX"), True),
    "169.254 alone": Fault(lambda shape: roce(shape) and not shape.env and "a9fe" not in str(first(shape).ports[0].gids), own_address_only, True),
    "no verbs class": Fault(lambda shape: True, without_class, True, lambda shape, device: ["kernel has no verbs"], "class"),
    "out of sequence": Fault(of(MELLANOX), port(hw_counters={"out_of_sequence": "250000"})),
    "timeouts": Fault(of(MELLANOX), port(hw_counters={"local_ack_timeout_err": "90000"})),
    "retries exceeded": Fault(of(MELLANOX), port(hw_counters={"req_transport_retries_exceeded": "40"})),
    "congestion": Fault(of(MELLANOX), port(hw_counters={"rp_cnp_handled": "90000000"})),
    "Broadcom repeats": Fault(of(BROADCOM), port(hw_counters={"to_retransmits": "300000"})),
    "Pensando gives up": Fault(of(PENSANDO), port(hw_counters={"req_tx_retry_excd_err": "40"})),
    "Intel repeats": Fault(lambda shape: of(INTEL)(shape) and roce(shape), port(hw_counters={"tcpRetransSegs": "3000000"})),
    "symbol errors": Fault(infiniband, lambda shape, device: device.ports[0].counters.update(symbol_error="4711")),
    "UCX_NET_DEVICES of nothing": setting(lambda shape: True, "UCX_NET_DEVICES", "mlx5_77:1"),
    "NCCL_IB_HCA with a blank": setting(two, "NCCL_IB_HCA", lambda shape: "=" + ", ".join(each.rpartition(":")[0] for each in shape.fabric)),
    "NCCL_NET_GDR_LEVEL=LOC": setting(nvidia, "NCCL_NET_GDR_LEVEL", "LOC"),
    "NCCL_IB_DISABLE": setting(lambda shape: True, "NCCL_IB_DISABLE", "1"),
    "NCCL_NET=Socket": setting(lambda shape: True, "NCCL_NET", "Socket"),
    "NCCL_IB_CUDA_SUPPORT": setting(nvidia, "NCCL_IB_CUDA_SUPPORT", "0"),
    "disabled": Fault(lambda shape: len(fabric_of(shape)) >= 4, port(state="1: DOWN", phys_state="3: Disabled")),
    "cable out": Fault(lambda shape: two(shape) and with_other_cards(shape), port(state="1: DOWN", phys_state="2: Polling"), True),
    "lost": Fault(told, lost, True, lambda shape, device: ["device"], "lost"),
    "address gone": Fault(lambda shape: roce(shape) and three(shape), port(gids=shapes.link_local(9, "e")), True),
}
# Where only two ports are, a fault of the one leaves nothing to compare the other with.
COMPARED = {name for name in FAULTS if FAULTS[name].needs in (two, with_interfaces) or "twice" in name}
UNUSABLE = {"a state that begins like another", "deferred", "disabled", "cable out"}
OF_ADDRESSES = {"169.254 alone", "address gone", "one GID twice", "kinds of GIDs"}


def faults_of(shape: Shape) -> list[str]:
    return [name for name, fault in FAULTS.items() if fault.needs(shape)]


def are_unrelated(shape: Shape, one: str, other: str) -> bool:
    if one == other or FAULTS[one].subject == FAULTS[other].subject != "port" or "lost" in (one, other):
        return False
    if {one, other} <= OF_ADDRESSES:
        return False
    cards = {device.pci[:-2] for device in fabric_of(shape)}
    if {one, other} <= {"disabled", "cable out"} and len(cards) < 3:
        return False  # two cards, one cable each: machines are sold so
    few = len(fabric_of(shape)) < 4
    return not few or not ({one, other} & UNUSABLE and {one, other} & COMPARED) and not {one, other} <= COMPARED


def judge(checker, name: str, faults: list[str]) -> None:
    """Each fault on another port."""
    shape = shapes_field.furnish(copy.deepcopy(MACHINES[name]))
    devices = fabric_of(shape)
    wanted = []
    for index, each in enumerate(faults, 1):
        device = devices[index % len(devices)]
        wanted.append(FAULTS[each].names(shape, device))
        FAULTS[each].change(shape, device)
    outcome = ask(checker, shape, "require")
    said = [check["evidence"] for check in outcome.checks.values() if check["verdict"] in ("warn", "fail", "unknown")]
    for each, words in zip(faults, wanted):
        assert any(word in evidence for word in words for evidence in said), (name, faults, each, words, said)
    if any(FAULTS[each].refuses for each in faults):
        assert outcome.status == 1, (name, faults, said)


def test_there_are_forty_more_machines():
    assert len(MACHINES) >= 40 and sum(len(faults_of(shape)) for shape in MACHINES.values()) >= 1000


@pytest.mark.parametrize("name", MACHINES)
def test_a_healthy_machine_is_not_refused_and_its_ports_are_the_owners(checker, name):
    shape = shapes_field.furnish(copy.deepcopy(MACHINES[name]))
    assert not oracle.refused(shape), "the oracle must agree that it is well"
    for policy in ("require", "prefer"):
        outcome = ask(checker, shape, policy)
        assert outcome.status == 0 and "fail" not in outcome.verdicts.values(), outcome.out
        assert sorted(outcome.report["nccl_ib_hca"].removeprefix("=").split(",")) == sorted(shape.fabric)


@pytest.mark.parametrize("shape", shapes_field.without_fabric(), ids=lambda shape: shape.name)
def test_a_machine_without_a_fabric(checker, shape):
    assert checker.node(shape.node).status == 3
    assert ask(checker, shape, "require").status == 1


@pytest.mark.parametrize("name", MACHINES)
def test_each_fault_is_named_alone(checker, name):
    for fault in faults_of(MACHINES[name]):
        judge(checker, name, [fault])


@pytest.mark.parametrize("name", MACHINES)
def test_each_fault_is_named_beside_another(checker, name):
    shape, dice = MACHINES[name], random.Random(name)
    faults = faults_of(shape)
    pairs = [(one, other) for one in faults for other in dice.sample(faults, len(faults)) if are_unrelated(shape, one, other)]
    chosen = {one: (one, other) for one, other in pairs} if PAIRS > len(faults) else dict(enumerate(dice.sample(pairs, min(PAIRS, len(pairs)))))
    for pair in chosen.values():
        judge(checker, name, list(pair))


# ---- what the machines above have taught

def test_storage_ports_of_another_chip_at_half_the_rate_are_not_for_nccl(checker):
    shape = copy.deepcopy(MACHINES["8 rails of RoCE and two slower storage ports, no table"])
    outcome = ask(checker, shape, "require")
    assert "mlx5_8:1 (a slower card of another model)" in outcome.checks["ib.count"]["evidence"], outcome.out
    for device in shape.node.devices[8:]:
        device.ports[0].rate = shapes.NDR
    assert "mlx5_8:1" in ask(checker, shape, "require").report["nccl_ib_hca"], "at the same rate nothing tells them from the fabric"
    shape.env = {"NCCL_IB_HCA": "mlx5"}
    shape.node.devices[8].ports[0].rate = shapes.HDR
    assert "mlx5_8:1" in ask(checker, shape, "require").report["nccl_ib_hca"], "the user has named them"


def test_a_card_of_the_fabrics_chip_on_another_board_is_of_the_fabric(checker):
    """A replacement has another board's id: without a cable it is sick and not for storage."""
    shape = copy.deepcopy(MACHINES["JUPITER, four GH200"])
    shape.node.devices[2].board_id = "MT_0000009999"
    port(state="1: DOWN", phys_state="2: Polling")(shape, shape.node.devices[2])
    outcome = ask(checker, shape, "require")
    assert outcome.status == 1 and "mlx5_2:1" in outcome.checks["ib.state"]["evidence"], outcome.out


def test_loss_that_some_rails_have_is_named_and_the_use_of_some_rails_is_not(checker):
    node = trees.roce(8)
    for index in range(8):
        node.port(index).counters["out_of_sequence"] = "250000" if index in (2, 5) else "3"
    said = checker.node(node).checks["roce.counters"]
    assert said["verdict"] == "warn" and "mlx5_2:1" in said["evidence"] and "mlx5_5:1" in said["evidence"], said
    for index in range(4):
        node.port(index).counters["out_of_sequence"] = "4000"
        node.port(index + 4).counters["out_of_sequence"] = "0"
    assert checker.node(node).verdicts["roce.counters"] == "pass", "a job that uses half of the rails"
