"""Published machines and what goes wrong with them, judged by an oracle that is not our code (oracle.py).

No machine that is well may be refused, under any policy under which its owner would run it; no machine that cannot do its
work may be let through where the fabric is required.
"""

import copy
import dataclasses
import itertools
import random

import oracle
import pytest
import shapes
import shapes_clouds
import shapes_vendors
import trees
from trees import Ethernet

HEALTHY = {shape.name: shape for shape in shapes.healthy() + shapes_vendors.healthy() + shapes_clouds.healthy()}
WITHOUT_FABRIC = shapes.azure_without_fabric() + shapes_vendors.without_fabric() + shapes_clouds.without_fabric()


def ask(checker, shape: shapes.Shape, policy: str):
    arguments = ["--policy", policy]
    if shape.table:
        table = checker.folder / "skus.conf"
        table.write_text(shape.table + "\n")
        arguments += ["--sku-table", table, "--sku", shape.table.split()[0]]
    elif shape.sku:
        arguments += ["--sku", shape.sku]
    return checker.node(shape.node, *arguments, env=shape.env)


# ------------------------------------------------------------------------------------------------------ what is well

def test_the_corpus_is_large_enough():
    assert len(HEALTHY) >= 90 and len({shape.source for shape in HEALTHY.values()}) >= 30
    assert all(shape.source for shape in HEALTHY.values())
    assert len(WITHOUT_FABRIC) >= 15
    assert len(SINGLE) + len(PAIRS) >= 200, (len(SINGLE), len(PAIRS))


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_machine_is_never_refused(checker, name):
    shape = HEALTHY[name]
    assert not oracle.refused(shape), "the oracle must agree that it is well"
    for policy in ("require", "prefer"):
        outcome = ask(checker, shape, policy)
        assert outcome.status == 0 and outcome.report["verdict"] in ("pass", "warn"), outcome.out
        assert "fail" not in outcome.verdicts.values(), outcome.out


@pytest.mark.parametrize("name", [name for name, shape in HEALTHY.items() if not shape.env.get("NCCL_IB_HCA")])
def test_the_ports_for_nccl_are_the_owners(checker, name):
    """What a job would be told to use: the fabric, the whole fabric and nothing but the fabric."""
    shape = HEALTHY[name]
    taken = ask(checker, shape, "require").report["nccl_ib_hca"]
    assert sorted(taken.removeprefix("=").split(",")) == sorted(shape.fabric)


@pytest.mark.parametrize("shape", WITHOUT_FABRIC, ids=lambda shape: shape.name)
def test_a_machine_without_a_fabric(checker, shape):
    """By default there is nothing to do, which drains nobody; required, it is missing."""
    default = checker.node(shape.node)
    assert default.status == 3 and default.report["nccl_ib_hca"] is None, default.out
    assert "fail" not in default.verdicts.values(), default.out
    required = ask(checker, shape, "require")
    assert required.status == 1 and "fail" in required.verdicts.values(), required.out


def test_efa_is_verified_where_the_table_knows_it(checker):
    node = shapes.efa(32)
    outcome = checker.node(node, "--sku", "p5.48xlarge")
    assert outcome.status == 0 and outcome.report["nccl_ib_hca"] is None, outcome.out
    node.devices.pop()
    assert checker.node(node, "--sku", "p5.48xlarge").status == 1
    node = shapes.efa(32)
    node.port(3).state = "1: DOWN"
    assert checker.node(node, "--sku", "p5.48xlarge").status == 1


# ------------------------------------------------------------------------------------------------- what goes wrong

def on_port(**values):
    def change(shape: shapes.Shape, device: trees.Device) -> None:
        for name, value in values.items():
            if device.ports:  # another fault may have taken them
                setattr(device.ports[0], name, copy.deepcopy(value))
    return change


def lost(shape: shapes.Shape, device: trees.Device) -> None:
    shape.node.devices = [each for each in shape.node.devices if each is not device]


def without_ports(shape: shapes.Shape, device: trees.Device) -> None:
    device.ports.clear()


def without_address(shape: shapes.Shape, device: trees.Device) -> None:
    on_port(gids=shapes.link_local(7, "ens7np0"))(shape, device)


def only_version_1(shape: shapes.Shape, device: trees.Device) -> None:
    if device.ports:
        gids = device.ports[0].gids
        device.ports[0].gids = {index: (gid, "IB/RoCE v1", netdev) for index, (gid, _, netdev) in gids.items()}


def with_env(name: str, value: str):
    def change(shape: shapes.Shape, device: trees.Device) -> None:
        shape.env[name] = value.replace("DEVICE", device.name)
    return change


MEGABYTE, JUNK = b"4" * (1 << 20), b"4: \xff\xfeACTIVE\n"
OF_ANY_PORT = {
    "cable out": on_port(state="1: DOWN", phys_state="2: Polling", rate="10 Gb/sec (4X SDR)", lid="0xffff", sm_lid="0x0"),
    "switched off": on_port(state="1: DOWN", phys_state="3: Disabled"),
    "asleep": on_port(state="1: DOWN", phys_state="1: Sleep"),
    "training": on_port(state="1: DOWN", phys_state="4: PortConfigurationTraining"),
    "in recovery": on_port(phys_state="6: LinkErrorRecovery"),
    "active without a link": on_port(phys_state="2: Polling"),
    "testing": on_port(phys_state="7: Phy Test"),
    "initialising": on_port(state="2: INIT"),
    "armed": on_port(state="3: ARMED"),
    "deferred": on_port(state="5: ACTIVE_DEFER"),
    "without a state": on_port(state=None),
    "empty state": on_port(state=""),
    "state of a megabyte": on_port(state=MEGABYTE),
    "state not text": on_port(state=JUNK),
    "state in words": on_port(state="ACTIVE"),
    "slow": on_port(rate="2.5 Gb/sec (1X SDR)"),
    "rate not a rate": on_port(rate="N/A"),
    "without a rate": on_port(rate=None),
    "lost": lost,
    "without ports": without_ports,
    "unspecified link layer": on_port(link_layer="Unspecified"),
}
OF_INFINIBAND = {
    "in Ethernet mode": on_port(link_layer=Ethernet),
    "LID 0": on_port(lid="0x0"),
    "LID 0xffff": on_port(lid="0xffff"),
    "LID not a number": on_port(lid="26"),
    "without a LID": on_port(lid=None),
    "no subnet manager": on_port(sm_lid="0x0", state="2: INIT"),
    "no SM LID": on_port(sm_lid="0x0"),
    "limited member": on_port(pkeys={0: "0x0018", 1: "0x7fff"}),
    "without a P_Key": on_port(pkeys={0: "0x0000"}),
    "P_Key not a number": on_port(pkeys={0: "0x8018", 1: "junk"}),
    "without a GID": on_port(gids={0: (shapes.NONE, "", "")}),
    "half the rate": on_port(rate="50 Gb/sec (2X EDR)"),
    "NCCL_IB_PKEY of an empty entry": with_env("NCCL_IB_PKEY", "9"),
    "NCCL_IB_HCA of nothing": with_env("NCCL_IB_HCA", "=none"),
    "NCCL_IB_HCA of another port": with_env("NCCL_IB_HCA", "=DEVICE:2"),
}
OF_ROCE = {
    "without an address": without_address,
    "RoCE v1 only": only_version_1,
    "GID table empty": on_port(gids={0: (shapes.NONE, "", "")}),
    "NCCL_IB_GID_INDEX of an empty entry": with_env("NCCL_IB_GID_INDEX", "200"),
    "NCCL_IB_HCA of nothing": with_env("NCCL_IB_HCA", "=none"),
}
OF_AZURE = {
    "NCCL_IB_HCA takes Accelerated Networking by a prefix": with_env("NCCL_IB_HCA", "mlx5"),
    "NCCL_IB_HCA takes it by leaving out others": with_env("NCCL_IB_HCA", "^DEVICE"),
    "NCCL_IB_HCA names it": with_env("NCCL_IB_HCA", "=mlx5_an0,DEVICE"),
}


def replaced_by(make):
    """The card is gone, and something that is not of the fabric is there: the number of devices stays."""
    def change(shape: shapes.Shape, device: trees.Device) -> None:
        lost(shape, device)
        other = make()
        if all(each.name != other.name for each in shape.node.devices):  # a second one would be of the same name
            shape.node.devices.append(other)
    return change


def named_like_the_fabric() -> trees.Device:
    return shapes.accelerator("mlx5_ib9", address=True)


def fast_ethernet() -> trees.Device:
    return shapes.eth("mlx5_40", number=90, hca="MT41692", board="MT_0000000884")


def spare_with_verbs_of_nobody() -> trees.Device:
    return shapes.down(shapes.ib("mlx5_41", number=91), "2: Polling")


def iwarp_elsewhere(name: str) -> trees.Device:
    device = shapes.iwarp(name)
    device.pci, device.pci_root = "0000:f9:00.0", "pci0000:f9"
    return device


def as_iwarp(shape: shapes.Shape, device: trees.Device) -> None:
    device.node_type = "4: RNIC"


def gids_of(change):
    def of_table(shape: shapes.Shape, device: trees.Device) -> None:
        if device.ports:
            device.ports[0].gids = {index: change(*entry) for index, entry in (device.ports[0].gids or {}).items()}
    return of_table


def only_loopback_addresses(gid, kind, netdev):
    """All that is not link-local is gone, as after a container's network was taken away."""
    return (gid, kind, netdev) if gid.startswith("fe80:") else (shapes.NONE, "", "")


OF_OTHER_INFINIBAND = {
    "replaced by Accelerated Networking under another name": replaced_by(named_like_the_fabric),
    "replaced by Ethernet of the same speed": replaced_by(fast_ethernet),
    "replaced by a card without a cable": replaced_by(spare_with_verbs_of_nobody),
    "replaced by iWARP": replaced_by(lambda: iwarp_elsewhere("iwp9s0")),
    "replaced by EFA": replaced_by(lambda: shapes.efa(1).devices[0]),
    "one lane": on_port(rate="100 Gb/sec (1X NDR)"),
    "in single data rate": on_port(rate="10 Gb/sec (4X SDR)"),
    "a rate of zero": on_port(rate="0 Gb/sec (4X NDR)"),
    "LID 0xffff": on_port(lid="0xffff"),
    "SM LID 0xffff": on_port(sm_lid="0xffff"),
    "LID of multicast": on_port(lid="0xc001"),
    "SM LID of multicast": on_port(sm_lid="0xc005"),
    "GID prefix alone": on_port(gids={0: ("fe80:0000:0000:0000:0000:0000:0000:0000", "IB/RoCE v1", "")}),
    "P_Key table empty": on_port(pkeys={}),
    "P_Keys all limited": on_port(pkeys={0: "0x7fff", 1: "0x0022", 2: "0x0000"}),
    "state of another kernel": on_port(state="4"),
    "state with a blank": on_port(state=" 1: DOWN"),
    "state NOP": on_port(state="0: NOP"),
    "state beyond the table": on_port(state="14: ACTIVE"),
    "state of tabs": on_port(state="4:\tACTIVE"),
    "negative state": on_port(state="-4: ACTIVE"),
    "link layer of another case": on_port(link_layer="infiniband"),
    "link layer with more": on_port(link_layer="InfiniBand (Ethernet)"),
    "NUL in the state": on_port(state=b"4: ACTIVE\0\n"),
}
OF_OTHER_ROCE = {
    "iWARP": as_iwarp,
    "addresses gone": gids_of(only_loopback_addresses),
    "replaced by Accelerated Networking under another name": replaced_by(lambda: shapes.accelerator("mlx5_77", address=False)),
    "replaced by iWARP": replaced_by(lambda: iwarp_elsewhere("iwp9s0")),
    "replaced by usNIC": replaced_by(shapes_vendors.usnic),
    "one lane": on_port(rate="25 Gb/sec (1X EDR)"),
    "in InfiniBand mode": on_port(link_layer="InfiniBand", gids={0: (shapes.NONE, "", "")}),
    "state NOP": on_port(state="0: NOP"),
    "state beyond the table": on_port(state="14: ACTIVE"),
    "NUL in the state": on_port(state=b"4: ACTIVE\0\n"),
}
BASES = {
    "by path": ("ConnectX-7, names by path", OF_ANY_PORT | OF_INFINIBAND | OF_OTHER_INFINIBAND),
    "NVL72": ("GB200 NVL72 tray with BlueFields", OF_ANY_PORT | OF_INFINIBAND | OF_OTHER_INFINIBAND),
    "DPU": ("H100 with a BlueField-3 in DPU mode", OF_OTHER_INFINIBAND),
    "Omni-Path": ("Omni-Path, two cards", OF_ANY_PORT | OF_OTHER_INFINIBAND),
    "Pollara": ("MI300X, 8 AMD Pollara", OF_ANY_PORT | OF_ROCE | OF_OTHER_ROCE),
    "rails": ("8 rails of RoCE and a bond for management", OF_ANY_PORT | OF_ROCE | OF_OTHER_ROCE),
    "tray of rails": ("GB300 tray, RoCE on two functions of each card", OF_ANY_PORT | OF_ROCE | OF_OTHER_ROCE),
    "E810": ("Intel E810 by path", OF_ANY_PORT | OF_ROCE | OF_OTHER_ROCE),
    "OCI MI300X": ("OCI BM.GPU.MI300X.8", OF_OTHER_ROCE),
    "H100": ("Azure nd96isr_h100_v5", OF_ANY_PORT | OF_INFINIBAND | OF_AZURE),
    "HB120": ("Azure hb120rs_v3", OF_ANY_PORT | OF_INFINIBAND | OF_AZURE),
    "GB300": ("Azure ND128isr_GB300_v6", OF_ANY_PORT | OF_INFINIBAND),
    "manual": ("the manual's example: a ninth HCA for storage at the same rate", OF_ANY_PORT | OF_INFINIBAND),
    "DGX": ("DGX H100 with storage at 200 Gb/s", OF_ANY_PORT | OF_INFINIBAND),
    "OCI": ("OCI BM.GPU.H100.8", OF_ANY_PORT | OF_ROCE),
    "GCP": ("GCP a3-ultragpu-8g", OF_ANY_PORT | OF_ROCE),
}

def on_plane(number: int, **values):
    """A port by its number: cards with several planes carry data over some of their ports."""
    def change(shape: shapes.Shape, device: trees.Device) -> None:
        for port in device.ports:
            if port.number == number:
                for name, value in values.items():
                    setattr(port, name, copy.deepcopy(value))
    return change


def every_other_port_down(shape: shapes.Shape, device: trees.Device) -> None:
    for each in shape.node.devices:
        if each is not device and each.ports:
            each.ports[0].state, each.ports[0].phys_state = "1: DOWN", "2: Polling"


def renamed(shape: shapes.Shape, device: trees.Device) -> None:
    """The kernel has found it anew, under another name and without a network."""
    device.name = f"{device.name}_again"
    if device.ports:
        device.ports[0].state, device.ports[0].phys_state = "1: DOWN", "2: Polling"


NO_GIDS = {0: (shapes.NONE, "", "")}
ONLY_IPV6 = {0: ("fe80:0000:0000:0000:0a00:27ff:fe00:0007", "RoCE v2", "e"), 1: ("fd00:0000:0000:0000:0000:0000:0000:0007", "RoCE v2", "e")}
OF_CLOUD_INFINIBAND = {
    "XDR card on an NDR link": on_port(rate="50 Gb/sec (4X FDR)"),
    "one lane of XDR": on_port(rate="200 Gb/sec (1X XDR)"),
    "one lane of HDR": on_port(rate="50 Gb/sec (1X HDR)"),
    "two lanes of EDR": on_port(rate="50 Gb/sec (2X EDR)"),
    "polling with the last rate": on_port(state="1: DOWN", phys_state="2: Polling"),
    "initialising with a LID": on_port(state="2: INIT", phys_state="5: LinkUp"),
    "LID without a manager": on_port(sm_lid="0x0"),
    "manager without a LID": on_port(lid="0x0"),
    "default partition limited": on_port(pkeys={0: "0x7fff"}),
    "partition of its own limited": on_port(pkeys={0: "0x0022", 1: "0x7fff"}),
    "P_Keys zero": on_port(pkeys={0: "0x0000", 1: "0x0000"}),
    "prefix of the subnet without a GUID": on_port(gids={0: (shapes.NONE, "IB/RoCE v1", "")}),
    "in Ethernet mode with an address": on_port(link_layer=Ethernet, gids=trees.roce_gids(9, "ens9"), lid="0x0", sm_lid="0x0"),
    "all others polling": every_other_port_down,
    "found anew under another name": renamed,
    "replaced by RoCE of a bond": replaced_by(lambda: shapes_clouds.bonded_lag("mlx5_bond_7", 77, "bond7", "400 Gb/sec (4X NDR)")),
}
OF_CLOUD_ROCE = {
    "one lane of HDR": on_port(rate="50 Gb/sec (1X HDR)"),
    "at 10 Gb/s": on_port(rate="10 Gb/sec (1X QDR)"),
    "polling with its addresses": on_port(state="1: DOWN", phys_state="2: Polling"),
    "IPv6 only, and NCCL asks for IPv4": on_port(gids=ONLY_IPV6),
    "GID table of zeros": on_port(gids={index: (shapes.NONE, "", "") for index in range(8)}),
    "link-local of version 2 only": on_port(gids={0: ("fe80:0000:0000:0000:0a00:27ff:fe00:0007", "RoCE v2", "e")}),
    "address of version 1 behind link-local": on_port(
        gids={0: ("fe80:0000:0000:0000:0a00:27ff:fe00:0007", "RoCE v2", "e"), 1: ("0000:0000:0000:0000:0000:ffff:0a00:0007", "IB/RoCE v1", "e")}),
    "armed": on_port(state="3: ARMED"),
    "in InfiniBand mode without a manager": on_port(link_layer="InfiniBand", state="2: INIT", lid="0xffff", sm_lid="0x0", gids=NO_GIDS),
    "all others polling": every_other_port_down,
    "found anew under another name": renamed,
    "replaced by a function without an address": replaced_by(lambda: shapes_clouds.link_only("mlx5_66")),
}
PLANE_DOWN = {"state": "1: DOWN", "phys_state": "2: Polling", "rate": "40 Gb/sec (4X QDR)"}
OF_PLANES = {
    "a plane without a cable": on_plane(6, **PLANE_DOWN),
    "a plane without a cable and addresses": on_plane(6, **PLANE_DOWN, gids=NO_GIDS),
    "the last plane without a cable and addresses": on_plane(12, **PLANE_DOWN, gids=NO_GIDS),
    "a plane that is off": on_plane(9, state="1: DOWN", phys_state="3: Disabled", gids=NO_GIDS),
    "a plane at one lane": on_plane(9, rate="100 Gb/sec (1X NDR)"),
    "a plane without an address": on_plane(3, gids=NO_GIDS),
    "a plane that trains": on_plane(3, state="1: DOWN", phys_state="4: PortConfigurationTraining"),
    "lost": lost,
    "without ports": without_ports,
}
CLOUD_BASES = {
    "flat bus": ("a virtual machine on one flat bus, 8 functions", OF_CLOUD_INFINIBAND),
    "four of 800": ("GB300, 4 HCAs of 800 Gb/s, and a bond of BlueFields", OF_CLOUD_INFINIBAND),
    "GB200": ("GB200, names by domain, and a bond of BlueFields", OF_CLOUD_INFINIBAND),
    "IPoIB bond": ("IPoIB in a bond", OF_CLOUD_INFINIBAND),
    "storage": ("8 NDR cards for the fabric, 2 HDR cards for storage", OF_CLOUD_INFINIBAND),
    "A4": ("GCP a4-highgpu-8g, names by path, gVNIC beside", OF_CLOUD_ROCE),
    "Thor 2": ("MI300X, 8 Thor 2 and two management ports of the same maker", OF_CLOUD_ROCE),
    "Pollara by path": ("MI350X, 8 Pollara, no counters of InfiniBand", OF_CLOUD_ROCE),
    "bonds": ("8 RoCE bonds of two ports", OF_CLOUD_ROCE),
    "sub-functions": ("a pod with sub-functions only", OF_CLOUD_ROCE),
    "planes": ("B300, ConnectX-8 with twelve ports for each device", OF_PLANES),
}
BASES |= CLOUD_BASES
# GB300 has no rate in the table, so a single port that is slow is compared with its neighbours: see RATELESS.
RATELESS = {("GB300", "half the rate"), ("GB300", "slow")}


def broken(base: str, changes: list[tuple[str, int]]) -> shapes.Shape:
    """A copy of a base with each change on the fabric's port of that index."""
    shape = copy.deepcopy(HEALTHY[BASES[base][0]])
    devices = {device.name: device for device in shape.node.devices}
    for name, index in changes:
        device = devices[shape.fabric[index % len(shape.fabric)].rpartition(":")[0]]
        BASES[base][1][name](shape, device)
    return shape


SINGLE = [(base, [(name, 3)]) for base, (_, faults) in BASES.items() for name in faults]


def some_pairs() -> list:
    chosen = random.Random(20261122)
    out = []
    for base, (_, faults) in BASES.items():
        pairs = [pair for pair in itertools.combinations(faults, 2) if not any("NCCL" in name for name in pair)]
        out += [(base, [(one, 1), (two, 2)]) for one, two in chosen.sample(pairs, 10 if base in CLOUD_BASES else 30)]
    return out


PAIRS = some_pairs()


@pytest.mark.parametrize("base, changes", SINGLE, ids=lambda value: value if isinstance(value, str) else value[0][0])
def test_a_fault_is_never_let_through(checker, base, changes):
    shape = broken(base, changes)
    why = oracle.refused(shape)
    if (base, changes[0][0]) in RATELESS:
        why = "slower than its neighbours"
    outcome = ask(checker, shape, "require")
    assert outcome.status == (1 if why else 0), (why, outcome.out)


@pytest.mark.parametrize("base", ["Pollara", "E810"])
def test_gids_whose_version_cannot_be_read_are_unknown(checker, base):
    shape = copy.deepcopy(HEALTHY[BASES[base][0]])
    gids_of(lambda gid, kind, netdev: (gid, "", netdev))(shape, shape.node.devices[1])
    outcome = ask(checker, shape, "require")
    assert outcome.status == 0 and outcome.report["verdict"] == outcome.verdicts["ib.gid"] == "unknown", outcome.out
    assert shape.node.devices[1].name in outcome.checks["ib.gid"]["evidence"]


def test_two_faults_are_never_let_through(checker):
    for base, changes in PAIRS:
        shape = broken(base, changes)
        why = oracle.refused(shape) or any((base, name) in RATELESS for name, _ in changes)
        outcome = ask(checker, shape, "require")
        assert outcome.status == (1 if why else 0), (base, changes, why, outcome.out)


# ------------------------------------------------------------------------------ NCCL's grammar, read independently twice

def selections(count: int) -> list[str]:
    chosen = random.Random(22)
    names = ["mlx5", "mlx5_", "mlx5_1", "mlx5_10", "mlx5_ib0", "mlx5_an0", "mlx4_0", "", "x" * 70, "mlx5_1x", "^", "="]
    tails = ["", ":1", ":2", ":", ":0", ":-1", ":x", ": 1", ":1:2:3", "::1", ":99999999999", ":1x", ":+1"]
    out = ["", "^", "=", "^=", "=^", "==", "^^", ",", ":", ":1", "^:", "=,"]
    while len(out) < count:
        entries = [chosen.choice(names) + chosen.choice(tails) for _ in range(chosen.choice([1, 1, 2, 3, 35]))]
        out.append(chosen.choice(["", "", "^", "=", "^=", "=^", "=="]) + ",".join(entries))
    return out


def test_nccls_grammar_read_twice(tmp_path):
    """Our reading (nccl_grammar.cpp) against oracle.nccl_takes(), for the current and the older grammar."""
    import subprocess

    import conftest
    devices = ["mlx5_0", "mlx5_1", "mlx5_10", "mlx5_ib0", "mlx5_an0", "mlx4_0", "x" * 63, "x" * 70, "^mlx5_1", "=mlx5_1"]
    texts = selections(1500)
    done = subprocess.run([conftest.TOOL.resolve().parent.parent / "lib/tests/nccl_grammar", *devices],
                          input="\n".join(texts) + "\n", capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    assert len(lines) == len(texts)
    for text, line in zip(texts, lines):
        current, older = line.split()
        for got, parse in ((current, oracle.parse_list), (older, oracle.parse_list_before)):
            expected = "".join(str(int(oracle.nccl_takes(text, device, port, parse))) for device in devices for port in (1, 2))
            assert got == expected, (text, parse.__name__)
