"""The table of fabricated nodes: what is wrong with each, and the verdicts that the field would give.

The expectations are written from the kernel's documentation and from what operators call broken, by hand; nothing is
computed from the code under test. A fault names the checks that change against a healthy node; all others must stay.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import trees
from trees import Ethernet, Node

# ------------------------------------------------------------------------------------------------------ published nodes

NDR, HDR, EDR, FDR = "400 Gb/sec (4X NDR)", "200 Gb/sec (4X HDR)", "100 Gb/sec (4X EDR)", "56 Gb/sec (4X FDR)"
CX3 = {"prefix": "mlx4_", "hca": "MT4103", "pci_id": "0x1004"}
CX4 = {"hca": "MT4115", "pci_id": "0x1014"}
CX5 = {"hca": "MT4119", "pci_id": "0x1018"}
CX6 = {"hca": "MT4123", "pci_id": "0x101c"}


def healthy() -> dict[str, tuple[Node, list[str]]]:
    """Nodes as published, with the SKU they are checked against, if any. All of them pass."""
    return {
        "ND96isr_H100_v5": (trees.azure(8, NDR, 8), ["--sku", "Standard_ND96isr_H100_v5"]),
        "ND96isr_H200_v5": (trees.azure(8, NDR, 8), ["--sku", "Standard_ND96isr_H200_v5"]),
        "ND96isr_MI300X_v5": (trees.azure(8, NDR, 0), ["--sku", "Standard_ND96isr_MI300X_v5"]),
        "ND96asr_v4": (trees.azure(8, HDR, 8, **CX6), ["--sku", "Standard_ND96asr_v4"]),
        "ND96amsr_A100_v4": (trees.azure(8, HDR, 8, **CX6), ["--sku", "Standard_ND96amsr_A100_v4"]),
        "ND40rs_v2": (trees.azure(1, EDR, 8, **CX5), ["--sku", "Standard_ND40rs_v2"]),
        "HC44rs": (trees.azure(1, EDR, 0, **CX5), ["--sku", "Standard_HC44rs"]),
        "HB60rs": (trees.azure(1, EDR, 0, **CX5), ["--sku", "Standard_HB60rs"]),
        "HB120rs_v2": (trees.azure(1, HDR, 0, **CX6), ["--sku", "Standard_HB120rs_v2"]),
        "HB120-96rs_v3, constrained cores": (trees.azure(1, HDR, 0, **CX6), ["--sku", "Standard_HB120-96rs_v3"]),
        "HB176rs_v4": (trees.azure(1, NDR, 0), ["--sku", "Standard_HB176rs_v4"]),
        "HX176rs": (trees.azure(1, NDR, 0), ["--sku", "HX176rs"]),
        "HB368rs_v5, two lanes": (trees.azure(4, "200 Gb/sec (2X NDR)", 0), ["--sku", "Standard_HB368rs_v5"]),
        "ND128isr_NDR_GB200_v6": (trees.azure(4, NDR, 4), ["--sku", "Standard_ND128isr_NDR_GB200_v6"]),
        "ND128isr_GB300_v6, rate unset": (trees.azure(4, "800 Gb/sec (4X XDR)", 4), ["--sku", "ND128isr_GB300_v6"]),
        "NC24rs_v3, ConnectX-3 Pro": (trees.azure(1, FDR, 0, **CX3), ["--sku", "Standard_NC24rs_v3"]),
        "bare H100 with an Ethernet bond": (trees.h100_bare(), ["--sku", "ND96isr_H100_v5"]),
        "ConnectX-3, FDR": (trees.azure(1, FDR, 0, **CX3), ["--policy", "require"]),
        "ConnectX-4, EDR": (trees.azure(1, EDR, 0, **CX4), ["--policy", "require"]),
        "ConnectX-5, EDR": (trees.azure(2, EDR, 0, **CX5), ["--policy", "require"]),
        "ConnectX-6, HDR": (trees.azure(2, HDR, 0, **CX6), ["--policy", "require"]),
        "ConnectX-6, HDR100 on two lanes": (trees.azure(2, "100 Gb/sec (2X HDR)", 0, **CX6), ["--policy", "require"]),
        "ConnectX-7, NDR200 on two lanes": (trees.azure(2, "200 Gb/sec (2X NDR)", 0), ["--policy", "require"]),
        "ConnectX-8, XDR": (trees.azure(8, "800 Gb/sec (4X XDR)", 0), ["--policy", "require"]),
        "RoCE, two ports": (trees.roce(), ["--policy", "require"]),
        "RoCE at 25 Gb/s, one lane": (trees.roce(1, "25 Gb/sec (1X EDR)"), ["--policy", "require"]),
        "soft-RoCE": (trees.soft_roce(), ["--policy", "require"]),
    }


# ----------------------------------------------------------------------------------------------------- faults, one each

@dataclasses.dataclass
class Fault:
    """One thing wrong with device number `index` of a node."""

    apply: Callable[[Node, int], None]
    expected: dict[str, str]
    unjudged: bool = False  # the device no longer has an InfiniBand port, so nothing else about it is judged
    active: bool = True     # a port that is not active has no rate, and nobody would use it


def on_port(**values) -> Callable[[Node, int], None]:
    def apply(node: Node, index: int) -> None:
        for name, value in values.items():
            setattr(node.port(index), name, value)
    return apply


def on_device(**values) -> Callable[[Node, int], None]:
    def apply(node: Node, index: int) -> None:
        for name, value in values.items():
            setattr(node.devices[index], name, value)
    return apply


def counter(name: str, value: str | bytes) -> Callable[[Node, int], None]:
    def apply(node: Node, index: int) -> None:
        node.port(index).counters[name] = value
    return apply


def lose(node: Node, index: int) -> None:
    node.devices[index] = dataclasses.replace(node.devices[index], name=f"mlx5_an{index + 7}",
                                              ports=trees.accelerated_networking().ports)


def netdev(operstate: str, losses: str = "0") -> Callable[[Node, int], None]:
    def apply(node: Node, index: int) -> None:
        node.devices[index].netdevs = {f"ib{index}": (operstate, losses)}
    return apply


def without_uverbs(node: Node, index: int) -> None:
    node.dev_nodes = dict(node.dev_nodes or {f"uverbs{i}": 0o666 for i in range(len(node.devices))})
    node.dev_nodes.pop(f"uverbs{index}", None)


def in_sysfs(change: Callable) -> Callable[[Node, int], None]:
    """A change of the finished folder of the device's first port."""
    def apply(node: Node, index: int) -> None:
        name = node.devices[index].name
        node.after.append(lambda sys, dev: change((sys / "class/infiniband" / name).resolve()))
    return apply


def loop(path):
    path.unlink()
    path.symlink_to(path.name)


def folder(path):
    path.unlink()
    path.mkdir()


def fifo(path):
    import os
    path.unlink()
    os.mkfifo(path)


MEGABYTE = b"4" * (1 << 20)
NOT_TEXT = b"4: \xff\xfeACTIVE\n"
DOWN = {"ib.state": "fail"}
SICK_STATE = ("", "active", "4:", "6: ODD", "-1: NOP", "4294967300: ACTIVE", "4 : ", "0: NOP", "5: ACTIVE_DEFER")

FAULTS: dict[str, Fault] = {
    "cable out": Fault(on_port(state="1: DOWN", phys_state="2: Polling", rate="10 Gb/sec (4X SDR)", lid="0xffff"),
                       {"ib.state": "fail", "ib.lid": "fail"}),
    "administratively down": Fault(on_port(state="1: DOWN", phys_state="3: Disabled"), DOWN),
    "asleep": Fault(on_port(state="1: DOWN", phys_state="1: Sleep"), DOWN),
    "no subnet manager": Fault(on_port(state="2: INIT", lid="0x0", sm_lid="0x0"),
                               {"ib.state": "fail", "ib.lid": "fail"}),
    "armed": Fault(on_port(state="3: ARMED"), DOWN),
    "link recovers from errors": Fault(on_port(phys_state="6: LinkErrorRecovery"), DOWN),
    "active without a link": Fault(on_port(phys_state="2: Polling"), DOWN),
    "one lane": Fault(on_port(rate="100 Gb/sec (1X NDR)"), {"ib.rate": "fail"}),
    "half the speed": Fault(on_port(rate="200 Gb/sec (4X HDR)"), {"ib.rate": "fail"}),
    "a rate that is none": Fault(on_port(rate="N/A"), {"ib.rate": "fail"}),
    "rate empty": Fault(on_port(rate=""), {"ib.rate": "fail"}),
    "LID 0": Fault(on_port(lid="0x0"), {"ib.lid": "fail"}),
    "LID 0xffff": Fault(on_port(lid="0xffff"), {"ib.lid": "fail"}),
    "no SM LID": Fault(on_port(sm_lid="0x0"), {"ib.lid": "fail"}),
    "LID in decimal": Fault(on_port(lid="26"), {"ib.lid": "fail"}),
    "limited member only": Fault(on_port(pkeys={0: "0x0018", 1: "0x7fff"}), {"ib.pkey": "fail"}),
    "no P_Key": Fault(on_port(pkeys={0: "0x0000", 1: "0x0000"}), {"ib.pkey": "fail"}),
    "no P_Key table": Fault(on_port(pkeys=None), {"ib.pkey": "fail"}),
    "P_Key unreadable": Fault(on_port(pkeys={0: "0x8018", 1: "junk"}), {"ib.pkey": "fail"}),
    "P_Key 0 limited, 1 full": Fault(on_port(pkeys={0: "0x7fff", 1: "0x8018"}), {"ib.pkey": "warn"}),
    "no GID": Fault(on_port(gids={0: ("fe80:0000:0000:0000:0000:0000:0000:0000", "", "")}), {"ib.gid": "fail"}),
    "GID zero": Fault(on_port(gids={0: ("0000:0000:0000:0000:0000:0000:0000:0000", "", "")}), {"ib.gid": "fail"}),
    "IPoIB down": Fault(netdev("down"), {"ib.netdev": "warn"}),
    "IPoIB loses its carrier": Fault(netdev("up", "512"), {"ib.netdev": "warn"}),
    "flaps": Fault(counter("link_downed", "3"), {"ib.flap": "warn"}),
    "flaps without end": Fault(counter("link_downed", "255"), {"ib.flap": "warn"}),
    "symbol errors": Fault(counter("symbol_error", "1"), {"ib.err": "warn"}),
    "link recoveries": Fault(counter("link_error_recovery", "2"), {"ib.err": "warn"}),
    "receive errors": Fault(counter("port_rcv_errors", "101"), {"ib.err": "warn"}),
    "packets of another partition": Fault(counter("port_xmit_constraint_errors", "255"), {"ib.err": "warn"}),
    "LID of multicast": Fault(on_port(lid="0xc001"), {"ib.lid": "fail"}),
    "transmit discards": Fault(counter("port_xmit_discards", "1001"), {"ib.err": "warn"}),
    "old firmware": Fault(on_device(fw_ver="28.37.1014"), {"ib.fw": "warn"}),
    "PCIe narrow": Fault(on_device(link=("32.0 GT/s PCIe", "32.0 GT/s PCIe", "8", "16")), {"ib.pcie": "warn"}),
    "PCIe slow": Fault(on_device(link=("8.0 GT/s PCIe", "32.0 GT/s PCIe", "16", "16")), {"ib.pcie": "warn"}),
    "Ethernet mode": Fault(on_port(link_layer=Ethernet), {"ib.linklayer": "fail", "ib.count": "fail"}, unjudged=True),
    "EFA among them": Fault(on_port(link_layer="Unspecified"), {"ib.linklayer": "fail", "ib.count": "fail"},
                            unjudged=True),
    "card lost": Fault(lose, {"ib.count": "fail"}, unjudged=True),
    "uverbs missing": Fault(without_uverbs, {"ib.devnode": "fail"}),
    "no ports": Fault(on_device(ports=[]), {"ib.sysfs": "fail", "ib.count": "fail"}, unjudged=True),
    # What a kernel cannot write, a broken file system, an attacker or a race can.
    "state of a megabyte": Fault(on_port(state=MEGABYTE), DOWN),
    "state not text": Fault(on_port(state=NOT_TEXT), DOWN),
    "state gone": Fault(on_port(state=None), DOWN),
    "state a folder": Fault(in_sysfs(lambda own: folder(own / "ports/1/state")), DOWN),
    "state a FIFO": Fault(in_sysfs(lambda own: fifo(own / "ports/1/state")), DOWN),
    "state a loop": Fault(in_sysfs(lambda own: loop(own / "ports/1/state")), DOWN),
    "rate of a megabyte": Fault(on_port(rate=MEGABYTE), {"ib.rate": "fail"}),
    "rate not text": Fault(on_port(rate=b"400 Gb/sec (4X \xc3\x28)\n"), {"ib.rate": "fail"}),
    "lid not text": Fault(on_port(lid=b"\x00\x01\x02"), {"ib.lid": "fail"}),
    "counters without a PMA": Fault(
        on_port(counters={name: "N/A (no PMA)" for name in trees.Port().counters}), {}),
    "counters of a megabyte": Fault(counter("symbol_error", MEGABYTE), {"ib.err": "unknown"}),
    "counter negative": Fault(counter("symbol_error", "-1"), {"ib.err": "unknown"}),
    "flaps unreadable": Fault(in_sysfs(lambda own: folder(own / "ports/1/counters/link_downed")),
                              {"ib.flap": "unknown", "ib.err": "unknown"}),
    "firmware not text": Fault(on_device(fw_ver=b"\xff\xff"), {"ib.fw": "unknown"}),
    "PCIe speed not text": Fault(on_device(link=(b"\xff\xff", "32.0 GT/s PCIe", "16", "16")), {"ib.pcie": "unknown"}),
    "PCIe width garbage": Fault(on_device(link=("32.0 GT/s PCIe", "32.0 GT/s PCIe", "wide", "16")), {"ib.pcie": "unknown"}),
    "no GID table": Fault(on_port(gids=None), {"ib.gid": "unknown"}),
}
STILL_ACTIVE = {"link recovers from errors", "active without a link"}
for name, fault in FAULTS.items():
    fault.active = name in STILL_ACTIVE or "ib.state" not in fault.expected
for text in SICK_STATE:
    FAULTS[f"state {text!r}"] = Fault(on_port(state=text), DOWN, active=False)


def base() -> Node:
    """Two InfiniBand ports, as on a node of the table's SKU `pair`, and Accelerated Networking."""
    return trees.azure(2, NDR, 0)


# Verdicts of a healthy `base`. Skips: no GPU; verbs and kernel log do not belong to the fabricated machine.
BASE = {"ib.policy": "pass", "ib.sysfs": "pass", "ib.count": "pass", "ib.linklayer": "pass", "ib.state": "pass",
        "ib.rate": "pass", "ib.lid": "pass", "ib.pkey": "pass", "ib.gid": "pass", "ib.netdev": "pass",
        "ib.ipoib": "skip", "ib.flap": "pass", "ib.err": "pass", "ib.fw": "pass", "ib.vf": "pass", "ib.pcie": "pass",
        "ib.affinity": "skip", "ib.devnode": "pass", "ib.provider": "skip", "ib.memlock": "pass", "ib.gdr": "skip",
        "ib.env": "pass", "ib.loopback": "skip", "ib.kmsg": "skip", "roce.counters": "skip", "roce.mtu": "skip",
        "roce.qos": "skip", "roce.cnp": "skip", "host.acs": "skip",
        "host.pci": "pass", "host.aer": "skip", "host.bridge": "skip", "gpu.count": "skip", "gpu.ecc": "skip",
        "gpu.rows": "skip", "gpu.nvlink": "skip", "gpu.fabric": "skip", "gpu.imex": "skip", "gpu.topology": "skip",
        "gpu.pcie": "skip", "gpu.throttle": "skip",
        "gpu.persistence": "skip", "gpu.xid": "skip"}

SEVERITY = ["skip", "pass", "unknown", "warn", "fail"]


def worst(verdicts) -> str:
    return max(verdicts, key=SEVERITY.index, default="skip")


def alone() -> dict[str, tuple[Node, dict[str, str]]]:
    out = {}
    for name, fault in FAULTS.items():
        node = base()
        fault.apply(node, 1)
        out[name] = (node, BASE | fault.expected)
    return out


# Faults of two devices that interact: one hides the effect of the other.
COUPLED = {"old firmware", "firmware not text", "counters without a PMA"}


def pairs() -> dict[str, tuple[Node, dict[str, str]]]:
    """Every two faults, each on a device of its own."""
    out = {}
    for (name, one), (other_name, two) in itertools.combinations(FAULTS.items(), 2):
        if one.unjudged and two.unjudged:
            continue  # nothing left to judge: tested by hand
        if (name in COUPLED and (two.unjudged or other_name in COUPLED)) or (other_name in COUPLED and one.unjudged):
            continue
        node = base()
        two.apply(node, 1)
        one.apply(node, 0)
        merged = {check: worst([fault.expected[check] for fault in (one, two) if check in fault.expected])
                  for check in one.expected | two.expected}
        if not any(fault.active and not fault.unjudged for fault in (one, two)):
            merged |= {"ib.rate": "skip", "ib.env": "skip"}
        out[f"{name} + {other_name}"] = (node, BASE | merged)
    return out
