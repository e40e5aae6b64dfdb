"""Healthy machines as their owners have published them, each with its source and with the ports that carry its fabric.

`fabric` is the owner's word (a topology, a configuration of health checks, a listing of ibstat); nothing is computed from
the code under test. Numbers in listings that identify a machine (GUIDs, LIDs) are replaced.
"""

from __future__ import annotations

import dataclasses

import trees
from trees import Device, Ethernet, InfiniBand, Node, Port

NDR, HDR, EDR, FDR, XDR = ("400 Gb/sec (4X NDR)", "200 Gb/sec (4X HDR)", "100 Gb/sec (4X EDR)", "56 Gb/sec (4X FDR)",
                           "800 Gb/sec (4X XDR)")
NONE = "0000:0000:0000:0000:0000:0000:0000:0000"


@dataclasses.dataclass
class Shape:
    name: str
    source: str
    node: Node
    fabric: list[str]          # "mlx5_ib0:1"; none: nothing that NCCL's verbs could use
    rate: float = 0            # Gb/s that each of these ports has at least
    sku: str | None = None     # a name of the table that describes this machine
    table: str | None = None   # or a line of the site's own table
    env: dict[str, str] = dataclasses.field(default_factory=dict)


def ib(name: str, rate: str = NDR, *, number: int = 1, hca: str = "MT4129", board: str = "MT_0000000838",
       pci: str = "", pci_id: str = "0x1021", virtual: bool = False, netdev: str = "", operstate: str = "up",
       lid: int = 0x100, fw: str = "28.43.2026") -> Device:
    port = Port(number=1, rate=rate, lid=f"0x{lid + number:x}", gids=trees.ib_gids(number % 256))
    return Device(name, [port], fw_ver=fw, board_id=board, hca_type=hca, pci=pci or f"{number + 1:04x}:00:00.0",
                  pci_root=f"pci{number:04x}:00/{number:04x}:00:01.0", pci_id=pci_id, virtual=virtual,
                  guid=f"a088:c203:0074:{number:04x}", netdevs={netdev: (operstate, "1")} if netdev else {})


def eth(name: str, rate: str = NDR, *, number: int = 1, hca: str = "MT4129", board: str = "MT_0000000840",
        pci: str = "", pci_id: str = "0x1021", virtual: bool = False, address: bool = True, netdev: str = "",
        gids=None, up: bool = True, vendor: str = "0x15b3", fw: str = "28.41.1000") -> Device:
    netdev = netdev or f"ens{number}np0"
    port = Port(link_layer=Ethernet, rate=rate, lid="0x0", sm_lid="0x0", pkeys={0: "0xffff"},
                gids=gids if gids is not None else (trees.roce_gids(number, netdev) if address else link_local(number, netdev)))
    if not up:
        port.state, port.phys_state, port.rate = "1: DOWN", "3: Disabled", "40 Gb/sec (4X QDR)"
    return Device(name, [port], fw_ver=fw, board_id=board, hca_type=hca, pci=pci or f"{number + 1:04x}:00:00.0",
                  pci_root=f"pci{number:04x}:00/{number:04x}:00:01.0", pci_id=pci_id, virtual=virtual, vendor=vendor,
                  guid=f"5c25:7303:0007:{number:04x}", netdevs={netdev: ("up" if up else "down", "1")})


def link_local(number: int, netdev: str) -> dict[int, tuple[str, str, str]]:
    local = f"fe80:0000:0000:0000:0a00:27ff:fe00:00{number:02x}"
    return {0: (local, "IB/RoCE v1", netdev), 1: (local, "RoCE v2", netdev), 2: (NONE, "", "")}


def down(device: Device, phys: str = "3: Disabled", rate: str = "10 Gb/sec (4X SDR)") -> Device:
    for port in device.ports:
        port.state, port.phys_state, port.rate, port.lid, port.sm_lid = "1: DOWN", phys, rate, "0xffff", "0x0"
    return device


def add_port(device: Device, port: Port) -> Device:
    device.ports.append(port)
    return device


def accelerator(name: str = "mlx5_an0", *, address: bool = False, master: bool = True, pci_id: str = "0x101a") -> Device:
    """Azure's Accelerated Networking as it is in a virtual machine: below the interface of hv_netvsc."""
    device = eth(name, "40 Gb/sec (4X QDR)", number=0x60, hca="MT4120", board="MSF0000000012", pci="f000:00:02.0",
                 pci_id=pci_id, virtual=True, address=address, netdev="enP61440s1", fw="16.30.5000")
    device.master = ("eth0", "hv_netvsc") if master else None
    return device


def ports(*names: str) -> list[str]:
    return [f"{name}:1" for name in names]


def gpus(count: int, vendor: str = "0x10de") -> tuple[list[trees.Gpu], dict[str, str | None]]:
    cards = [trees.Gpu(f"1{index:03x}:00:00.0", f"pci{index + 1:04x}:00/{index + 1:04x}:00:01.0", "0", vendor)
             for index in range(count)]
    return cards, {"nvidia": "550.90", "nvidia_peermem": "550.90"} if vendor == "0x10de" else {"amdgpu": None}


# ---------------------------------------------------------------------------------------------------------------- Azure

# conf/NAME.conf of github.com/Azure/azurehpc-health-checks: "check_hw_ib RATE mlx5_ibN:1" for N in 0..COUNT-1, and
# "check_gpu_count GPUS".
AZUREHPC = {
    "hb120-16rs_v3": (1, 200, 0), "hb120-32rs_v3": (1, 200, 0), "hb120-64rs_v3": (1, 200, 0),
    "hb120-96rs_v3": (1, 200, 0), "hb120rs_v2": (1, 200, 0), "hb120rs_v3": (1, 200, 0), "hb176-144rs_v4": (1, 400, 0),
    "hb176-24rs_v4": (1, 400, 0), "hb176-48rs_v4": (1, 400, 0), "hb176-96rs_v4": (1, 400, 0), "hb176rs_v4": (1, 400, 0),
    "hc44-16rs": (1, 100, 0), "hc44-32rs": (1, 100, 0), "hc44rs": (1, 100, 0), "hx176-144rs": (1, 400, 0),
    "hx176-24rs": (1, 400, 0), "hx176-48rs": (1, 400, 0), "hx176-96rs": (1, 400, 0), "hx176rs": (1, 400, 0),
    "nd128isr_ndr_gb200_v6": (4, 400, 4), "nd40rs_v2": (1, 100, 8), "nd96amsr_a100_v4": (8, 200, 8),
    "nd96asr_mi200_v4": (8, 200, 16), "nd96asr_v4": (8, 200, 8), "nd96isr_h100_v5": (8, 400, 8),
    "nd96isr_h200_v5": (8, 400, 8), "nd96isr_mi300x_v5": (8, 400, 8), "nd96isrf_h200_v5": (8, 400, 8),
}
RATES = {100: EDR, 200: HDR, 400: NDR}
CARDS = {100: ("MT4119", "0x1018"), 200: ("MT4123", "0x101c"), 400: ("MT4129", "0x101e")}


def azure_node(count: int, rate: int, gpu_count: int, *, prefix: str = "mlx5_ib", amd: bool = False) -> Node:
    hca, pci_id = CARDS[rate]
    cards, modules = gpus(gpu_count, "0x1002" if amd else "0x10de")
    devices = [ib(f"{prefix}{index}", RATES[rate], number=index + 1, hca=hca, board="MSF0000000047", pci_id=pci_id,
                  virtual=True, netdev=f"ib{index}") for index in range(count)]
    return Node([*devices, accelerator()], cards, modules)


def azure_shapes() -> list[Shape]:
    out = []
    for size, (count, rate, gpu_count) in AZUREHPC.items():
        node = azure_node(count, rate, gpu_count, amd="mi" in size)
        out.append(Shape(f"Azure {size}", f"azurehpc-health-checks conf/{size}.conf", node,
                         ports(*(f"mlx5_ib{index}" for index in range(count))), rate, f"Standard_{size}"))
    moved = azure_node(1, 200, 0, prefix="mlx5_")
    moved.devices[0].name, moved.devices[1].name = "mlx5_1", "mlx5_0"
    moved.devices.reverse()
    out.append(Shape("Azure HB120rs_v2, names by the kernel's order",
                     "learn.microsoft.com, HB-series: without the udev rule Accelerated Networking may be mlx5_0", moved,
                     ["mlx5_1:1"], 200, "Standard_HB120rs_v2"))
    out.append(Shape("Azure NC24rs_v3, ConnectX-3 Pro", "github.com/NVIDIA/nccl-tests/issues/36",
                     Node([ib("mlx4_0", FDR, hca="MT4100", board="MT_0000000010", pci_id="0x1004", virtual=True,
                              netdev="ib0", fw="2.43.7008")]), ["mlx4_0:1"], 56, "Standard_NC24rs_v3"))
    gb300 = Node([ib(f"mlx5_ib{index}", XDR, number=index + 1, hca="MT4131", pci_id="0x1023") for index in range(4)])
    out.append(Shape("Azure ND128isr_GB300_v6", "learn.microsoft.com, ND-GB300-v6: 4 ConnectX-8", gb300,
                     ports(*(f"mlx5_ib{index}" for index in range(4))), 0, "Standard_ND128isr_GB300_v6"))
    lanes = Node([ib(f"mlx5_ib{index}", "200 Gb/sec (2X NDR)", number=index + 1, virtual=True, pci_id="0x101e")
                  for index in range(4)] + [accelerator()])
    out.append(Shape("Azure HB368rs_v5, two lanes", "learn.microsoft.com, HBv5: 4 x 200 Gb/s", lanes,
                     ports(*(f"mlx5_ib{index}" for index in range(4))), 200, "Standard_HB368rs_v5"))
    mana = azure_node(8, 400, 8)
    mana.devices[-1] = eth("mana_0", "100 Gb/sec (4X EDR)", number=0x61, hca=None, board=None, vendor="0x1414",
                           pci_id="0x00ba", address=True, netdev="enP30832s1")
    mana.devices[-1].master = ("eth0", "hv_netvsc")
    out.append(Shape("Azure H100 with MANA", "docs.kernel.org, networking/device_drivers/ethernet/microsoft/netvsc",
                     mana, ports(*(f"mlx5_ib{index}" for index in range(8))), 400, "Standard_ND96isr_H100_v5"))
    return out


def azure_without_fabric() -> list[Shape]:
    """Nothing to verify: passes by default (skipped), and must not pass under `require`."""
    source = "docs.kernel.org: netvsc sets the function's interface below its own; Azure gives it no address of its own"
    return [
        Shape("Azure D64s_v5: Accelerated Networking as mlx5_0", source, Node([accelerator("mlx5_0")]), []),
        Shape("the same with ConnectX-4 Lx", source, Node([accelerator("mlx5_0", pci_id="0x1016")]), []),
        Shape("the same with an address of its own", source, Node([accelerator("mlx5_0", address=True)]), []),
        Shape("the same, known by its name only", source, Node([accelerator("mlx5_an0", master=False)]), []),
        Shape("Azure with MANA alone", source,
              Node([eth("mana_0", EDR, hca=None, board=None, vendor="0x1414", pci_id="0x00ba")]), []),
        Shape("AWS p5.48xlarge, EFA", "docs.aws.amazon.com/AWSEC2, efa-acc-inst-types", efa(32), []),
        Shape("AWS hpc6a.48xlarge, EFA", "docs.aws.amazon.com/AWSEC2, efa-acc-inst-types", efa(1), []),
        Shape("iWARP, Chelsio T6", "kernel: drivers/infiniband/hw/cxgb4 (RDMA_NODE_RNIC)",
              Node([iwarp("iwp1s0f4")]), []),
        Shape("soft-iWARP", "kernel: drivers/infiniband/sw/siw", Node([iwarp("siw0")]), []),
        Shape("no device", "any other machine", Node([]), []),
    ]


def efa(count: int) -> Node:
    out = []
    for index in range(count):
        device = trees.efa().devices[0]
        device.name, device.pci = f"rdmap{index + 16}s0", f"0000:{index + 16:02x}:00.0"
        device.pci_root, device.vendor = f"pci0000:{index + 16:02x}", "0x1d0f"
        out.append(device)
    return Node(out)


def iwarp(name: str) -> Device:
    device = eth(name, "100 Gb/sec (4X EDR)", hca=None, board=None, vendor="0x1425", pci_id="0x6408")
    device.node_type = "4: RNIC"
    return device


# ---------------------------------------------------------------------------------------------------- other machines

def imbue() -> Node:
    """8 ConnectX-7 without IPoIB addresses, and two ConnectX-6 Dx with two Ethernet ports, one cabled each."""
    compute = {"mlx5_0": 1, "mlx5_3": 2, "mlx5_4": 3, "mlx5_5": 4, "mlx5_6": 5, "mlx5_9": 6, "mlx5_10": 7, "mlx5_11": 8}
    devices = [ib(name, number=number) for name, number in compute.items()]
    for name, number, up in (("mlx5_1", 20, True), ("mlx5_2", 21, False), ("mlx5_7", 22, True), ("mlx5_8", 23, False)):
        devices.append(eth(name, EDR, number=number, hca="MT4125", pci=f"0000:{0x1b + number // 2:02x}:00.{number % 2}", address=up, up=up))
    return Node(sorted(devices, key=lambda device: int(device.name.rpartition("_")[2])))


def dgx(generation: str) -> Shape:
    if generation == "A100":
        compute = ["mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3", "mlx5_6", "mlx5_7", "mlx5_8", "mlx5_9"]
        devices = [ib(name, HDR, number=index + 1, hca="MT4123", board="MT_0000000223", pci_id="0x101b")
                   for index, name in enumerate(compute)]
        devices += [down(ib(name, HDR, number=index + 20, hca="MT4123", board="MT_0000000224", pci_id="0x101b",
                            pci=f"0000:5{index}:00.0"))
                    for index, name in enumerate(["mlx5_4", "mlx5_10"])]
        devices += [eth(name, EDR, number=index + 30, hca="MT4123", board="MT_0000000224", pci=f"0000:5{index}:00.1")
                    for index, name in enumerate(["mlx5_5", "mlx5_11"])]
        line = "dgx fabric=infiniband devices=8 rate=200 gpus=8"
        return Shape("DGX A100", "docs.nvidia.com/dgx/dgxa100-user-guide: 8 compute, 2 dual-port for storage",
                     Node(devices), ports(*compute), 200, None, line)
    compute = ["mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11"]
    devices = [ib(name, number=index + 1, board="NVD0000000030") for index, name in enumerate(compute)]
    devices += [ib(name, HDR, number=index + 20, board="MT_0000000892", pci=f"0000:5{index}:00.0")
                for index, name in enumerate(["mlx5_1", "mlx5_7"])]
    devices += [eth(name, EDR, number=index + 30, board="MT_0000000892", pci=f"0000:5{index}:00.1")
                for index, name in enumerate(["mlx5_2", "mlx5_8"])]
    return Shape("DGX H100 with storage at 200 Gb/s", "docs.nvidia.com/dgx/dgxh100-user-guide: 8 OSFP, 2 dual-port cards",
                 Node(devices), ports(*compute), 400, None, "dgx fabric=infiniband devices=8 rate=400 gpus=8")


def roce_nodes(count: int, rate: str, **options) -> list[Device]:
    return [eth(f"mlx5_{index}", rate, number=index + 1, **options) for index in range(count)]


def kubernetes_gids(number: int, netdev: str, empty: int) -> dict[int, tuple[str, str, str]]:
    """A pod's addresses behind those of the host, which the pod sees as empty entries."""
    table = {index: (NONE, "", "") for index in range(empty)}
    return table | {index + empty: entry for index, entry in trees.roce_gids(number, netdev).items()}


def oci_h100() -> Node:
    devices = []
    for index in range(18):
        vcn = index in (2, 11)  # the interfaces of the VCN
        devices.append(eth(f"mlx5_{index}", EDR if vcn else HDR, number=index + 1, board="ORC0000000005" if vcn else
                           "ORC0000000007", hca="MT4125" if vcn else "MT4129", netdev=f"rdma{index}"))
    return Node(devices)


def second_port(state: str, phys: str, layer: str = InfiniBand) -> Port:
    return Port(number=2, state=state, phys_state=phys, link_layer=layer, rate="10 Gb/sec (4X SDR)", lid="0x0",
                sm_lid="0x0", gids=trees.ib_gids(99))


def listed_shapes() -> list[Shape]:
    deepep = "github.com/deepseek-ai/DeepEP/issues/"
    h20 = Node([ib(f"mlx5_{index}", number=index + 1) for index in range(8)])
    sglang = Node([eth(f"mlx5_{index}", number=index + 40, hca="MT4125", board="MT_0000000359", address=False, up=False,
                       pci=f"0000:2b:00.{index}", fw="22.43.2566") for index in range(2)] +
                  [ib(f"mlx5_{index}", number=index, fw="28.43.2566") for index in range(2, 10)])
    gb10 = Node([eth(name, HDR, number=number, pci=pci, address=up, up=up, netdev=f"en{name[4:]}", fw="28.45.4028")
                 for name, number, pci, up in (("roceP2p1s0f0", 1, "0002:01:00.0", True), ("roceP2p1s0f1", 2, "0002:01:00.1", False),
                                               ("rocep1s0f0", 3, "0000:01:00.0", True), ("rocep1s0f1", 4, "0000:01:00.1", False))])
    nccl128 = Node([ib("mlx5_0", HDR, hca="MT4123", pci_id="0x101b", fw="20.33.1048"),
                    down(ib("mlx5_1", HDR, number=2, hca="MT4123", pci_id="0x101b", fw="20.33.1048")),
                    eth("mlx5_2", "25 Gb/sec (1X EDR)", number=3, hca="MT4117", pci_id="0x1015", fw="14.32.1010")])
    dual = Node([add_port(ib("mlx4_0", FDR, hca="MT4099", pci_id="0x1003", fw="2.42.5000"),
                          second_port("1: DOWN", "2: Polling"))])
    both = Node([add_port(ib("mlx4_0", FDR, hca="MT4099", pci_id="0x1003", fw="2.42.5000"),
                          Port(number=2, rate=FDR, lid="0xc", sm_lid="0x8", gids=trees.ib_gids(7)))])
    vpi = Node([add_port(ib("mlx4_0", FDR, hca="MT4099", pci_id="0x1003", fw="2.42.5000"),
                         second_port("1: DOWN", "3: Disabled", Ethernet))])
    functions = Node([ib("mlx5_0", EDR, hca="MT4119", pci_id="0x1017", pci="0000:3b:00.0", fw="16.35.2000"),
                      down(ib("mlx5_1", EDR, number=2, hca="MT4119", pci_id="0x1017", pci="0000:3b:00.1", fw="16.35.2000"),
                           "2: Polling")])
    bonds = Node([eth(f"mlx5_bond_{index}", HDR, number=index + 1, netdev=f"bond{index}") for index in range(4)])
    bf3 = Node([eth("mlx5_0", HDR, number=1, hca="MT41692", board="MT_0000000884", netdev="eth0")] +
               [eth(f"mlx5_{index}", number=index + 1) for index in range(1, 9)])
    virtual_host = Node([ib(f"mlx5_{index}", number=index + 1) for index in range(8)] +
                        [down(ib(f"mlx5_{index}", number=index + 1, virtual=True, pci_id="0x101e"), "5: LinkUp")
                         for index in range(8, 24)])
    roce_virtual = Node(roce_nodes(2, EDR, hca="MT4119", pci_id="0x1017") +
                        [eth(f"mlx5_{index}", EDR, number=index + 20, hca="MT4120", pci_id="0x1018", virtual=True,
                             address=False) for index in range(2, 10)])
    pods = Node([eth(f"mlx5_{index}", number=index + 1, gids=kubernetes_gids(index + 1, "net1", 36 + 7 * index),
                     netdev="net1", virtual=True, pci_id="0x101e") for index in range(4)])
    bonded = Node(roce_nodes(2, EDR) + [eth(f"mlx5_{index}", EDR, number=index + 9, address=False, board="MT_0000000012",
                                            netdev=f"ens{index}f0") for index in (2, 3)])
    for device in bonded.devices[2:]:
        device.master = ("bond0", "bonding")
    opa = Node([Device("hfi1_0", [Port(rate=EDR, gids=trees.ib_gids(1), pkeys={0: "0x8001", 1: "0x7fff", 2: "0xffff"})],
                       fw_ver="1.27.0", board_id="Intel Omni-Path Host Fabric Interface Adapter 100 Series", hca_type=None,
                       pci="0000:5e:00.0", pci_id="0x24f0", vendor="0x8086")])
    bnxt = Node([eth(f"bnxt_re{index}", number=index + 1, hca="BCM57608", board=None, vendor="0x14e4", pci_id="0x1760",
                     fw="230.2.52.0", netdev=f"rdma{index}") for index in range(8)])
    irdma = Node([eth(f"irdma{index}", EDR, number=index + 1, hca=None, board=None, vendor="0x8086", pci_id="0x1592",
                      fw="1.71") for index in range(2)])
    coreweave = Node([ib(f"ibp{index}", number=index + 1, netdev=f"ibp{index}") for index in range(8)] +
                     [eth("mlx5_bond_0", EDR, number=50, hca="MT41692", netdev="bond0")])
    differing = Node(roce_nodes(2, EDR))
    differing.devices[1].ports[0].gids = kubernetes_gids(2, "ens2np0", 4)
    ipv6 = Node([eth("mlx5_0", EDR, gids={0: ("fe80:0000:0000:0000:0a00:27ff:fe00:0001", "IB/RoCE v1", "e"),
                                          1: ("fe80:0000:0000:0000:0a00:27ff:fe00:0001", "RoCE v2", "e"),
                                          2: ("fd00:0000:0000:0000:0000:0000:0000:0001", "IB/RoCE v1", "e"),
                                          3: ("fd00:0000:0000:0000:0000:0000:0000:0001", "RoCE v2", "e")})])
    manual = Node([ib(f"mlx5_{index}", number=index + 1) for index in range(9)])
    eight = ports(*(f"mlx5_{index}" for index in range(8)))
    return [
        dgx("A100"), dgx("H100"),
        Shape("H100, 8 ConnectX-7 and 2 dual-port ConnectX-6 Dx", "github.com/imbue-ai/cluster-health/issues/4", imbue(),
              ports("mlx5_0", "mlx5_3", "mlx5_4", "mlx5_5", "mlx5_6", "mlx5_9", "mlx5_10", "mlx5_11"), 400),
        Shape("H20, 8 ConnectX-7", deepep + "303", h20, eight, 400),
        Shape("H20 with unused Ethernet ports", "github.com/sgl-project/sglang/issues/6823", sglang,
              ports(*(f"mlx5_{index}" for index in range(2, 10))), 400),
        Shape("H20, RoCE over 4 bonds", deepep + "150", bonds, ports(*(f"mlx5_bond_{index}" for index in range(4))), 200),
        Shape("H20, RoCE, management at another rate", deepep + "17", bf3,
              ports(*(f"mlx5_{index}" for index in range(1, 9))), 400),  # mlx5_0 is eth0, which NCCL would take, too
        Shape("GB10, two functions cabled of four", "github.com/geerlingguy/sbc-reviews/issues/92", gb10,
              ports("roceP2p1s0f0", "rocep1s0f0"), 200),
        Shape("two HDR cards, one switched off", "github.com/NVIDIA/nccl-tests/issues/128", nccl128, ["mlx5_0:1"], 200),
        Shape("ConnectX-3, second port without a cable", "ibv_devinfo in the wiki of shackspace.de and others", dual,
              ["mlx4_0:1"], 56),
        Shape("ConnectX-3, both ports on subnets of their own", "ibv_devinfo in RDMA tutorials", both,
              ["mlx4_0:1", "mlx4_0:2"], 56),
        Shape("ConnectX-3, second port Ethernet and off", "docs.nvidia.com/networking: VPI", vpi, ["mlx4_0:1"], 56),
        Shape("ConnectX-5, second function without a cable", "docs.nvidia.com/networking: dual-port cards are two functions",
              functions, ["mlx5_0:1"], 100),
        Shape("idle virtual functions beside InfiniBand", "docs.kernel.org: SR-IOV of mlx5; the host keeps them down",
              virtual_host, eight, 400),
        Shape("idle virtual functions beside RoCE", "docs.kernel.org: SR-IOV of mlx5", roce_virtual,
              ports("mlx5_0", "mlx5_1"), 100),
        Shape("a pod whose GIDs begin behind 36 to 57 empty entries", "github.com/NVIDIA/nccl/issues/1573: GIDs of other namespaces",
              pods, ports(*(f"mlx5_{index}" for index in range(4))), 400),
        Shape("GID indices that differ between devices", "NCCL: ncclIbGetGidIndex scans each device", differing,
              ports("mlx5_0", "mlx5_1"), 100),
        Shape("RoCE over IPv6", "docs.nvidia.com/deeplearning/nccl: NCCL_IB_ADDR_FAMILY", ipv6, ["mlx5_0:1"], 100,
              env={"NCCL_IB_ADDR_FAMILY": "AF_INET6"}),
        Shape("RoCE beside a bond of other ports", "docs.kernel.org: bonding", bonded, ports("mlx5_0", "mlx5_1"), 100),
        Shape("Omni-Path", "kernel: drivers/infiniband/hw/hfi1 reports link layer InfiniBand", opa, ["hfi1_0:1"], 100),
        Shape("MI300X, 8 Broadcom Thor 2", "docs.broadcom.com: 957608 RoCE; names bnxt_re0-7", bnxt,
              ports(*(f"bnxt_re{index}" for index in range(8))), 400),
        Shape("Intel E810, RoCE", "kernel: drivers/infiniband/hw/irdma", irdma, ports("irdma0", "irdma1"), 100),
        Shape("H100 with predictable names and a BlueField-3", "docs.coreweave.com: ibp0-7", coreweave,
              ports(*(f"ibp{index}" for index in range(8))), 400),
        Shape("OCI BM.GPU.H100.8", "oracle-quickstart/oci-hpc-oke: NCCL_IB_HCA of the shape", oci_h100(),
              [f"mlx5_{index}:1" for index in range(18) if index not in (2, 11)], 200, "BM.GPU.H100.8"),
        Shape("GCP a3-ultragpu-8g", "cloud.google.com/compute/docs/gpus/gpu-network-bandwidth: MRDMA functions",
              Node(roce_nodes(8, NDR, virtual=True, pci_id="0x101e")), eight, 400, "a3-ultragpu-8g"),
        Shape("GCP a4-highgpu-8g", "cloud.google.com/compute/docs/gpus/gpu-network-bandwidth",
              Node(roce_nodes(8, NDR, virtual=True, pci_id="0x101e")), eight, 400, "a4-highgpu-8g"),
        Shape("the manual's example: a ninth HCA for storage at the same rate", "aml-dist-skus(5)", manual, eight, 400,
              None, "ours fabric=infiniband devices=8 rate=400 hca=^mlx5_8"),
        Shape("B300, 8 ConnectX-8", deepep + "590",
              Node([ib(f"mlx5_{index}", XDR, number=index + 1, hca="MT4131", pci_id="0x1023") for index in range(8)]),
              eight, 800),
        Shape("soft-RoCE", "kernel: drivers/infiniband/sw/rxe", trees.soft_roce(), ["rxe0:1"], 2.5),
    ]


# What users set beside a healthy fabric: recipes of Azure, OCI, UCX and NCCL.
HEALTHY_ENVIRONMENTS = [
    {"UCX_NET_DEVICES": "eth0"}, {"UCX_TLS": "tcp"}, {"UCX_TLS": "tcp,sm,self", "UCX_NET_DEVICES": "eth0"},
    {"UCX_NET_DEVICES": "^mlx5_an0:1"}, {"UCX_NET_DEVICES": "mlx5_ib[0-7]:1"}, {"UCX_NET_DEVICES": "all"},
    {"NCCL_IB_HCA": "mlx5_ib"}, {"NCCL_IB_HCA": "^mlx5_an0"}, {"NCCL_IB_HCA": "=mlx5_ib0:1,mlx5_ib1:1"},
    {"NCCL_IB_HCA": "^=mlx5_an0"}, {"NCCL_IB_HCA": "mlx5_ib0:1:0:0,mlx5_ib1:1:1:0"}, {"NCCL_SOCKET_IFNAME": "eth0"},
]


def healthy() -> list[Shape]:
    shapes = azure_shapes() + listed_shapes()
    base = next(shape for shape in shapes if shape.sku == "Standard_nd96isr_h100_v5")
    for env in HEALTHY_ENVIRONMENTS:
        text = " ".join(f"{name}={value}" for name, value in env.items())
        shapes.append(dataclasses.replace(base, name=f"Azure H100 with {text}", source="published job scripts", env=env))
    return shapes
