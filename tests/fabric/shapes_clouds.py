"""Healthy machines, third hand: virtual machines, bonds, planes, sub-functions, storage and management cards, and what
kernels write where a device has no answer. As in shapes.py the owner's word says what the fabric is."""

from __future__ import annotations

import shapes
import shapes_vendors
import trees
from shapes import EDR, HDR, NDR, XDR, Shape, accelerator, add_port, down, eth, gpus, ib, link_local, ports
from shapes_vendors import HDR100, other
from trees import Ethernet, InfiniBand, Node, Port

NOTHING_KNOWN = ("Unknown", "Unknown", "0", "0")      # drivers/pci/pci-sysfs.c, a function without a link of its own
SWITCHED_OFF = ("Unknown", "32.0 GT/s PCIe", "0", "16")


def with_link(devices, link):
    for device in devices:
        device.link = link
    return devices


def with_numa(devices, numa):
    for device in devices:
        device.numa = numa
    return devices


def in_subnet(devices, prefix: str):
    for device in devices:
        for port in device.ports:
            port.gids = {index: (gid.replace("fe80:0000:0000:0000", prefix) if index == 0 else gid, kind, netdev)
                         for index, (gid, kind, netdev) in port.gids.items()}
    return devices


def bonded_lag(name: str, number: int, bond: str, rate: str = HDR, **options):
    """RoCE over LAG as mlx5 shows it: one RDMA device for two interfaces, which are the bond's, with the bond's addresses."""
    device = eth(name, rate, number=number, gids=trees.roce_gids(number, bond), **options)
    device.netdevs = {f"ens{number}f0np0": ("up", "1"), f"ens{number}f1np1": ("up", "1")}
    device.master = (bond, "bonding")
    return device


def ipoib_bond(number: int):
    device = ib(f"mlx5_{number}", NDR, number=number + 1, netdev=f"ib{number}")
    device.master = ("bond0", "bonding")
    return device


def multi_plane_roce(index: int):
    """B300 with ConnectX-8: twelve ports for each device, data on 3, 6, 9 and 12, the others without a network."""
    device = eth(f"mlx5_{index}", "200 Gb/sec (2X NDR)", number=index + 1, hca="MT4131", pci_id="0x1023", fw="40.47.1088")
    planes = []
    for number in range(1, 13):
        data = number % 3 == 0
        gids = trees.roce_gids(index * 16 + number, f"eth_r{index}_p{number // 3 - 1}") if data else {0: (shapes.NONE, "", "")}
        planes.append(Port(number=number, link_layer=Ethernet, lid="0x0", sm_lid="0x0", pkeys={0: "0xffff"}, gids=gids,
                           rate="200 Gb/sec (2X NDR)" if data else "40 Gb/sec (4X QDR)",
                           state="4: ACTIVE" if data else "1: DOWN", phys_state="5: LinkUp" if data else "3: Disabled"))
    device.ports = planes
    return device


def sub_function(name: str, number: int, *, address: bool):
    """A scalable function: its device is on the auxiliary bus, and has none of a PCI function's files."""
    device = eth(name, HDR, number=number, hca="MT41692", board="MT_0000000884", address=address, netdev=f"enp3s0f0s{number}")
    device.pci = None
    return device


def switchdev(name: str, number: int):
    """The physical function as a switch: a port for each representor, and no GIDs at all."""
    device = eth(name, HDR, number=number, hca="MT41692", board="MT_0000000884", netdev="p0", gids={0: (shapes.NONE, "", "")})
    for each in range(2, 6):
        add_port(device, Port(number=each, link_layer=Ethernet, rate=HDR, lid="0x0", sm_lid="0x0", pkeys={0: "0xffff"},
                              gids={0: (shapes.NONE, "", "")}))
    return device


def thor(index: int, **options):
    """Broadcom: no counters folder of InfiniBand, only hw_counters."""
    device = other(f"bnxt_re{index}", NDR, index + 1, "0x14e4", "0x1760", "231.2.63.0", hca="BCM57608", **options)
    device.ports[0].counters = None
    return device


def lambda_vm() -> Node:
    """All on one flat virtual bus, nothing known of links and nodes of memory."""
    devices = [ib(f"mlx5_{index}", number=index + 1, virtual=True, pci_id="0x101e", pci=f"0000:00:{index + 6:02x}.0")
               for index in range(8)]
    for device in devices:
        device.pci_root = "pci0000:00"
    cards, modules = gpus(8)
    for index, card in enumerate(cards):
        card.pci, card.pci_root, card.numa = f"0000:00:{index + 0x10:02x}.0", "pci0000:00", "-1"
    return Node(with_numa(with_link(devices, NOTHING_KNOWN), "-1"), cards, modules)


def gcp_a4() -> Node:
    """Names by path; the two gVNICs have no RDMA device."""
    names = ["rocep145s0", "rocep146s0", "rocep152s0", "rocep153s0", "rocep198s0", "rocep199s0", "rocep205s0", "rocep206s0"]
    devices = [eth(name, NDR, number=index + 1, virtual=True, pci_id="0x101e", netdev=f"gpu{index}rdma0", fw="28.44.2506")
               for index, name in enumerate(names)]
    node = Node(with_link(devices, NOTHING_KNOWN), *gpus(8))
    node.after.append(lambda sys, dev: [trees.write(sys / f"class/net/{name}/operstate", "up") for name in ("enp0s19", "enp192s20")])
    return node


def quad_hca_nccl_1412() -> Node:
    return Node([ib(f"mlx5_{index}", HDR, number=index + 0x21, hca="MT4123", pci_id="0x101b", fw="20.39.1002") for index in range(3)] +
                [eth("mlx5_3", "40 Gb/sec (4X QDR)", number=9, hca="MT4127", board="MT_0000000531", pci_id="0x101f", fw="26.39.1002",
                     address=False)])


def half_cabled_h100() -> Node:
    """4 of 14 functions have a cable: the owner names them."""
    cabled = (1, 7, 9, 13)
    devices = []
    for index in range(14):
        device = ib(f"mlx5_{index}", number=index + 1, fw="28.39.2048")
        devices.append(device if index in cabled else down(device, "2: Polling", "10 Gb/sec (4X SDR)"))
    return Node(devices)


def soft_beside() -> Node:
    rxe = trees.soft_roce().devices[0]
    return Node([ib(f"mlx5_{index}", EDR, number=index + 1, hca="MT4119", pci_id="0x1017") for index in range(2)] + [rxe])


def no_physical_state() -> Node:
    device = ib("mthca0", "20 Gb/sec (4X DDR)", hca="MT25208", board="MT_0370130002", pci_id="0x6282", fw="5.3.0")
    device.ports[0].rate = "20 Gb/sec (4X DDR)"
    return Node([device])


def healthy() -> list[Shape]:
    eight = ports(*(f"mlx5_{index}" for index in range(8)))
    coreweave = Node([ib(f"ibp{index}", XDR, number=index + 1, hca="MT4131", pci_id="0x1023", netdev=f"ibp{index}") for index in range(4)] +
                     [bonded_lag("mlx5_bond_0", 40, "bond0", hca="MT41692", board="MT_0000000884")])
    dell = Node([thor(index) for index in range(8)] +
                [other(f"bnxt_re{index}", "25 Gb/sec (1X EDR)", index + 1, "0x14e4", "0x1751", "230.0.157.0", hca="BCM57504",
                       address=index == 8) for index in (8, 9)], *gpus(8, "0x1002"))
    pollara = Node([other(f"roceo{index + 1}", NDR, index + 1, "0x1dd8", "0x1002", "1.117.5-a-56", hca="POLLARA-1Q400P", netdev=f"enp{index}s0")
                    for index in range(8)], *gpus(8, "0x1002"))
    for device in pollara.devices:
        device.ports[0].counters = None
    storage = Node([ib(f"mlx5_{index}", number=index + 1) for index in range(8)] +
                   [ib(f"mlx5_{index}", HDR, number=index + 1, board="MT_0000000892", hca="MT4123", pci_id="0x101b", fw="20.43.1014")
                    for index in (8, 9)])
    split = Node([ib("mlx5_0", HDR100, hca="MT4123", board="MT_0000000222", pci_id="0x101b", fw="20.40.1000"),
                  eth("mlx5_1", "25 Gb/sec (1X EDR)", number=2, hca="MT4127", pci_id="0x101f", address=False)])
    qib = ib("qib0", "40 Gb/sec (4X QDR)", hca=None, board="InfiniPath_QLE7340", pci_id="0x7322", fw=None)
    qib.vendor = "0x1077"
    gb200 = Node([ib(f"ibp{domain}s0", number=index + 1, pci=f"00{domain:02x}:03:00.0") for index, domain in enumerate((0, 2, 0x10, 0x12))] +
                 [bonded_lag("mlx5_bond_0", 50, "bond0", hca="MT41692", board="MT_0000000884")], *gpus(4))
    irdma = Node([other("rocep202s0f0", EDR, 1, "0x8086", "0x1593", "1.72", virtual=True),
                  other("rocep202s0f1", EDR, 2, "0x8086", "0x1593", "1.72", up=False, address=False)])
    without_limit = Node([eth(f"mlx5_{index}", EDR, number=index + 1, virtual=True, pci_id="0x101a", hca="MT4120") for index in range(2)])
    with_numa(with_link(without_limit.devices, ("Unknown speed", "Unknown speed", "0", "255")), None)
    down_on_purpose = Node([ib("mlx5_0", HDR, number=1, hca="MT4123", pci_id="0x101b", pci="0000:3b:00.0"),
                            down(ib("mlx5_1", HDR, number=2, hca="MT4123", pci_id="0x101b", pci="0000:3b:00.1"))])
    manager = Node([ib("mlx5_0", EDR, hca="MT4119", pci_id="0x1017", lid=0)])
    manager.devices[0].ports[0].sm_lid = manager.devices[0].ports[0].lid
    dpu = Node([ib(f"mlx5_{index}", number=index + 1) for index in range(8)] +
               [switchdev("mlx5_8", 30), sub_function("mlx5_9", 31, address=True), sub_function("mlx5_10", 32, address=False)])
    pods = Node([sub_function(f"mlx5_{index}", index + 1, address=True) for index in range(4)])
    lag8 = Node([bonded_lag(f"mlx5_bond_{index}", index + 1, f"bond{index}", fw="28.41.1000") for index in range(8)], *gpus(8))
    return [
        Shape("a virtual machine on one flat bus, 8 functions", "docs.lambda.ai: 1-Click Clusters; kernel: pci-sysfs.c", lambda_vm(), eight, 400, None, "flat fabric=infiniband devices=8 rate=400 gpus=8"),
        Shape("GCP a4-highgpu-8g, names by path, gVNIC beside", "cloud.google.com/ai-hypercomputer: RDMA networks of A4", gcp_a4(),
              ports("rocep145s0", "rocep146s0", "rocep152s0", "rocep153s0", "rocep198s0", "rocep199s0", "rocep205s0", "rocep206s0"), 400,
              "a4-highgpu-8g"),
        Shape("three HDR cards and an Ethernet port without an address", "github.com/NVIDIA/nccl/issues/1412", quad_hca_nccl_1412(),
              ports("mlx5_0", "mlx5_1", "mlx5_2"), 200),
        Shape("H100, 4 of 14 ports cabled", "github.com/deepseek-ai/DeepEP/issues/38", half_cabled_h100(),
              ports("mlx5_1", "mlx5_7", "mlx5_9", "mlx5_13"), 400, None,
              "four fabric=infiniband devices=4 rate=400 hca==mlx5_1,mlx5_7,mlx5_9,mlx5_13"),
        Shape("two HDR cards on EDR switches", "github.com/NVIDIA/nccl/issues/307",
              Node([ib(f"mlx5_{index}", EDR, number=index + 1, hca="MT4123", pci_id="0x101b") for index in range(4)]),
              ports(*(f"mlx5_{index}" for index in range(4))), 100),
        Shape("B300, ConnectX-8 with twelve ports for each device", "github.com/scitix/sichek/pull/98",
              Node([multi_plane_roce(index) for index in range(8)]),
              [f"mlx5_{index}:{number}" for index in range(8) for number in (3, 6, 9, 12)], 200, None,
              "planes fabric=roce devices=8 rate=200"),
        Shape("GB300, 4 HCAs of 800 Gb/s, and a bond of BlueFields", "docs.coreweave.com: GB300 NVL72", coreweave,
              ports(*(f"ibp{index}" for index in range(4))), 800, None, "nvl fabric=infiniband devices=4 rate=800"),
        Shape("GB200, names by domain, and a bond of BlueFields", "docs.nvidia.com/dgx/dgxgb200-user-guide", gb200,
              [f"ibp{domain}s0:1" for domain in (0, 2, 16, 18)], 400, None, "gb200 fabric=infiniband devices=4 rate=400 gpus=4"),
        Shape("MI300X, 8 Thor 2 and two management ports of the same maker", "docs.broadcom.com; github.com/ROCm/mori/pull/291", dell,
              ports(*(f"bnxt_re{index}" for index in range(8))), 400, None,
              "dell fabric=roce devices=8 rate=400 hca==" + ",".join(f"bnxt_re{index}" for index in range(8))),
        Shape("MI350X, 8 Pollara, no counters of InfiniBand", "kernel: drivers/infiniband/hw/ionic", pollara,
              ports(*(f"roceo{index}" for index in range(1, 9))), 400, None, "ainic fabric=roce devices=8 rate=400"),
        Shape("8 NDR cards for the fabric, 2 HDR cards for storage", "docs.nvidia.com/dgx-superpod: storage fabric", storage, eight, 400, None,
              "pod fabric=infiniband devices=8 rate=400 hca=^mlx5_8,mlx5_9"),
        Shape("HDR100 by a split cable, and an Ethernet port for management", "docs.nvidia.com/networking: HDR splitter cables", split,
              ["mlx5_0:1"], 100),
        Shape("TrueScale", "kernel: drivers/infiniband/hw/qib", Node([qib]), ["qib0:1"], 40),
        Shape("DDR, InfiniHost III", "kernel: drivers/infiniband/hw/mthca", no_physical_state(), ["mthca0:1"], 20),
        Shape("Intel E810 function in a virtual machine, its second without a cable", "kernel: drivers/infiniband/hw/irdma", irdma,
              ["rocep202s0f0:1"], 100),
        Shape("RoCE functions of which the bus tells nothing", "kernel: drivers/pci/pci-sysfs.c, max_link_width 255", without_limit,
              ports("mlx5_0", "mlx5_1"), 100),
        Shape("the second function is down on purpose", "docs.nvidia.com/networking: dual-port cards are two functions", down_on_purpose,
              ["mlx5_0:1"], 200),
        Shape("the node runs the subnet manager itself", "man opensm: SM LID and LID are equal", manager, ["mlx5_0:1"], 100),
        Shape("InfiniBand in a subnet with a prefix of its own", "man opensm: subnet_prefix",
              Node(in_subnet([ib(f"mlx5_{index}", number=index + 1) for index in range(8)], "fec0:0000:0000:0007")), eight, 400),
        Shape("IPoIB in a bond", "docs.kernel.org: bonding, active-backup over IPoIB", Node([ipoib_bond(0), ipoib_bond(1)]),
              ports("mlx5_0", "mlx5_1"), 400, None, "two fabric=infiniband devices=2 rate=400"),
        Shape("8 RoCE bonds of two ports", "docs.nvidia.com/networking: RoCE over LAG; github.com/NVIDIA/nccl/pull/2150", lag8,
              ports(*(f"mlx5_bond_{index}" for index in range(8))), 200, None, "lag fabric=roce devices=8 rate=200 gpus=8"),
        Shape("InfiniBand beside soft-RoCE", "man rdma-link: type rxe", soft_beside(), ports("mlx5_0", "mlx5_1"), 100),
        Shape("H100 beside a BlueField as a switch, with sub-functions", "github.com/Mellanox/scalablefunctions/issues/2", dpu, eight, 400),
        Shape("a pod with sub-functions only", "docs.nvidia.com/networking: scalable functions", pods,
              ports(*(f"mlx5_{index}" for index in range(4))), 200, None, "pod fabric=roce devices=4 rate=200"),
        Shape("Azure H100 whose bus tells nothing", "kernel: drivers/pci/controller/pci-hyperv.c",
              azure_flat(), ports(*(f"mlx5_ib{index}" for index in range(8))), 400, "Standard_ND96isr_H100_v5"),
        Shape("Alibaba eRDMA", "help.aliyun.com: eRDMA with NCCL; kernel: drivers/infiniband/hw/erdma (RDMA_NODE_RNIC)",
              Node([erdma()]), ["erdma_0:1"], 100),
        Shape("DGX Spark, one of two cables", "docs.nvidia.com, DGX Spark: each port is a function in two PCI domains",
              half_cabled_spark(), ["rocep1s0f1:1", "roceP2p1s0f1:1"], 200),
        Shape("MI300X, cards of two ports with one cable each", "github.com/ROCm/rccl/issues: eight cards, one cable each",
              half_cabled_cards(8), [f"mlx5_{2 * index}:1" for index in range(8)], 400),
        Shape("one card of two ports, one cable, both with an address", "forums.developer.nvidia.com: ConnectX-6 Dx dual port",
              half_cabled_cards(1), ["mlx5_0:1"], 400),
        Shape("RoCE over IPv6 alone, unique-local", "github.com/NVIDIA/nccl/issues: NCCL_IB_GID_INDEX on fd00::/8",
              six_only(4), [f"mlx5_{index}:1" for index in range(4)], 400),
        Shape("port numbers of two digits", "github.com/scitix/sichek/pull/98", twelve_only(), ["mlx5_0:12"], 200),
    ]


def azure_flat() -> Node:
    node = shapes.azure_node(8, 400, 8)
    with_link(node.devices, NOTHING_KNOWN)
    return node


def twelve_only() -> Node:
    node = Node([multi_plane_roce(0)])
    for port in node.devices[0].ports:
        if port.number != 12:
            port.state, port.phys_state, port.gids = "1: DOWN", "3: Disabled", {0: (shapes.NONE, "", "")}
    return node


def erdma():
    device = eth("erdma_0", EDR, hca=None, board=None, vendor="0x1ded", pci_id="0x107f")
    device.node_type = "4: RNIC"
    device.ports[0].gids = {0: ("0016:3e00:0102:0000:0000:0000:0000:0000", "IB/RoCE v1", "")}
    return device


def half_cabled_cards(count: int) -> Node:
    """Cards of two functions. The second has an address, too, and no cable."""
    devices = []
    for index in range(2 * count):
        device = eth(f"mlx5_{index}", NDR, number=index, hca="MT4129", pci=f"{index // 2 + 1:04x}:00:00.{index % 2}")
        device.pci_root = f"pci{index // 2:04x}:00/{index // 2:04x}:00:01.0"
        if index % 2:
            shapes.down(device, "2: Polling")
        devices.append(device)
    return Node(devices)


def half_cabled_spark() -> Node:
    node = half_cabled_cards(2)
    for device, name in zip(node.devices, ("rocep1s0f0", "rocep1s0f1", "roceP2p1s0f0", "roceP2p1s0f1")):
        device.name, port = name, device.ports[0]
        shapes.down(device, "2: Polling")
        if name.endswith("f1"):
            port.state, port.phys_state, port.rate = "4: ACTIVE", "5: LinkUp", "200 Gb/sec (4X HDR)"
    return node


def six_only(count: int) -> Node:
    devices = []
    for index in range(count):
        device = eth(f"mlx5_{index}", NDR, number=index)
        local = f"fe80:0000:0000:0000:0a00:27ff:fe00:00{index:02x}"
        routable = f"fd12:3456:789a:000{index}:0a00:27ff:fe00:0001"
        device.ports[0].gids = {0: (local, "IB/RoCE v1", ""), 1: (local, "RoCE v2", ""),
                                2: (routable, "IB/RoCE v1", ""), 3: (routable, "RoCE v2", "")}
        devices.append(device)
    return Node(devices)


def without_fabric() -> list[Shape]:
    return [
        Shape("OCI VM.Standard.E5: no RDMA, a function for the network", "docs.oracle.com: VM shapes have no cluster network",
              Node([link_only("mlx5_0")]), []),
        Shape("AWS p6e-gb200.36xlarge, EFA", "docs.aws.amazon.com/AWSEC2, efa-acc-inst-types", shapes.efa(4), []),
    ]


def link_only(name: str):
    return eth(name, "25 Gb/sec (1X EDR)", number=0x71, hca="MT4126", board="ORC0000000005", virtual=True, pci_id="0x101e", address=False,
               gids=link_local(3, "ens3"))
