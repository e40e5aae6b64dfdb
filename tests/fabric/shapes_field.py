"""Machines of 2024 to 2026: Blackwell trays, AMD's with three makers' cards, cards of two ports, supercomputers whose cables differ from
card to card, storage beside the fabric. The owner's word says what the fabric is; the files look as the drivers make them."""

from __future__ import annotations

import shapes
import trees
from shapes import EDR, HDR, NDR, XDR, Shape, accelerator, down, eth, gpus, ib, link_local
from shapes_clouds import NOTHING_KNOWN, bonded_lag, erdma, in_subnet, with_link, with_numa
from shapes_vendors import HDR100, LANE25, NDR200, hfi, other
from trees import Device, InfiniBand, Node

NVIDIA, AMD = "0x10de", "0x1002"
BUSES = (3, 41, 67, 95, 133, 171, 197, 225)


def numbered(prefix: str, *parts) -> list[str]:
    return [f"{prefix}{index}" for part in parts for index in (part if isinstance(part, range) else [part])]


def gpu_cards(count: int, vendor: str = NVIDIA):
    cards, modules = gpus(count, vendor)
    for index, card in enumerate(cards):
        card.driver = "nvidia" if vendor == NVIDIA else "amdgpu"
        card.link = ("2.5 GT/s PCIe" if index % 2 else "32.0 GT/s PCIe", "32.0 GT/s PCIe", "16", "16")  # every other one is idle
        card.numa = str(index * 2 // count)
    return cards, modules


def cx7(names, rate: str = NDR, make=ib, **more) -> list[Device]:
    return [make(name, rate, number=index + 1, hca="MT4129", pci_id="0x1021", **more) for index, name in enumerate(names)]


def cx8(names, rate: str = XDR, make=ib, **more) -> list[Device]:
    return [make(name, rate, number=index + 1, hca="MT4131", pci_id="0x1023", board="MT_0000001222", fw="40.47.1026", **more)
            for index, name in enumerate(names)]


def bf3(names, place: str, *, first: int = 40, cabled=(True, True), make=eth, rate: str = HDR) -> list[Device]:
    """A BlueField-3 at "0000:51:00": its functions, each with a cable or not."""
    out = []
    for index, name in enumerate(names):
        more = {"number": first + index, "hca": "MT41692", "board": "MT_0000000884", "pci_id": "0xa2dc", "fw": "32.43.2566", "pci": f"{place}.{index}"}
        if make is eth:
            out.append(eth(name, rate, up=cabled[index], address=cabled[index], netdev=f"en{name}", **more))
        else:
            out.append(ib(name, rate, **more) if cabled[index] else down(ib(name, rate, **more), "2: Polling"))
    return out


def dual_port(make, rate: str, cards: int, **more) -> list[Device]:
    """Cards of two functions each, mlx5_0 and mlx5_1 the first."""
    return [make(f"mlx5_{index}", rate, number=index + 1, pci=f"{index // 2:04x}:18:00.{index % 2}", **more) for index in range(2 * cards)]


def without_cables(devices: list[Device], which, phys: str = "2: Polling") -> list[Device]:
    for index in which:
        down(devices[index], phys, "40 Gb/sec (4X QDR)")
    return devices


def spark(*cabled: bool) -> list[Device]:
    names = zip(("rocep1s0f0", "rocep1s0f1", "roceP2p1s0f0", "roceP2p1s0f1"), ("0000:01:00.0", "0000:01:00.1", "0002:01:00.0", "0002:01:00.1"), cabled)
    return [eth(name, HDR, number=index + 1, board="NVD0000000087", pci=place, up=up, address=up, fw="28.45.4028", netdev=f"en{name[4:]}")
            for index, (name, place, up) in enumerate(names)]


def neighbours() -> list[Device]:
    """Two machines on one cable, with the addresses that they give themselves."""
    devices = spark(True, False, True, False)
    for index in (0, 2):
        local, own = f"fe80:0000:0000:0000:4ebb:47ff:fe00:000{index}", f"0000:0000:0000:0000:0000:ffff:a9fe:100{index}"
        devices[index].ports[0].gids = {0: (local, "IB/RoCE v1", "e"), 1: (local, "RoCE v2", "e"), 2: (own, "IB/RoCE v1", "e"), 3: (own, "RoCE v2", "e")}
    return devices


def other_socket() -> list[Device]:
    devices = spark(False, True, False, True)
    for index in (0, 2):
        devices[index].ports[0].phys_state, devices[index].ports[0].gids = "2: Polling", link_local(7, "x")
    return devices


def summit(phys: str) -> list[Device]:
    """One card for two sockets: two PCI domains, of each another port has the cable."""
    devices = [ib(f"mlx5_{index}", EDR, number=index + 1, hca="MT4119", pci_id="0x1019", board="IBM0000000018", fw="16.29.1016",
                  pci=f"{'0003' if index < 2 else '0033'}:01:00.{index % 2}") for index in range(4)]
    return without_cables(devices, (1, 2), phys)


def grand_teton() -> list[Device]:
    devices = cx7(numbered("mlx5_", range(8)), make=eth, board="MT_0000000840")
    for index, device in enumerate(devices):
        name, tail = f"beth{index}", f"0a00:27ff:fe00:00{index:02x}"
        device.netdevs = {name: ("up", "1")}
        device.ports[0].gids = {number: (f"{prefix}:{tail}", kind, name) for number, (prefix, kind) in enumerate(
            (prefix, kind) for prefix in ("fe80:0000:0000:0000", f"2401:db00:0000:0{index:x}01") for kind in ("IB/RoCE v1", "RoCE v2"))}
    return devices


def two_erdma() -> list[Device]:
    one, two = erdma(), erdma()
    two.name, two.pci, two.pci_root, two.guid, two.netdevs = "erdma_1", "0000:09:00.0", "pci0000:09", "0216:3eff:fe01:0203", {"eth1": ("up", "1")}
    two.ports[0].gids = {0: ("0016:3e00:0103:0000:0000:0000:0000:0000", "IB/RoCE v1", "")}
    return [one, two]


def azure(count: int, rate: str, prefix: str = "mlx5_ib", **more) -> list[Device]:
    more = {"board": "MSF0000000047", "pci_id": "0x101e", "virtual": True} | more
    return [ib(f"{prefix}{index}", rate, number=index + 1, netdev=f"ib{index}", **more) for index in range(count)]


def mana(rate: str = HDR) -> Device:
    device = eth("mana_0", rate, number=0x61, hca=None, board=None, vendor="0x1414", pci_id="0x00ba", netdev="enP30832s1")
    device.master = ("eth0", "hv_netvsc")
    return device


def makers(names, maker: str, **more) -> list[Device]:
    vendor, pci_id, firmware, chip = {"Broadcom": ("0x14e4", "0x1760", "232.0.155.5", "BCM57608"),
                                      "Pensando": ("0x1dd8", "0x1002", "1.117.5-a-56", "POLLARA-1Q400P")}[maker]
    return [other(name, NDR, index + 1, vendor, pci_id, firmware, hca=chip, **more) for index, name in enumerate(names)]


def machine(name: str, source: str, devices, fabric, rate: float, *, gpu=(0, NVIDIA), hca: str = "", **more) -> Shape:
    """`hca`: what the site's table says about it."""
    kind = next(device.ports[0].link_layer for device in devices if device.name == fabric[0])
    if hca:
        word = "infiniband" if kind == InfiniBand else "roce"
        more["table"] = f"ours fabric={word} devices={len(fabric)} rate={rate} hca={hca}" + (f" gpus={gpu[0]}" if gpu[0] else "")
    return Shape(name, source, Node(devices, *(gpu_cards(*gpu) if gpu[0] else ())), [f"{each}:1" for each in fabric], rate, **more)


def nvidia() -> list[Shape]:
    b200, b200_storage = numbered("mlx5_", 4, 7, 8, 9, 10, 13, 14, 15), numbered("mlx5_", 0, 3, 4, 5, 6, 9, 10, 11)
    b300, halves = [f"ibp{bus}s0" for bus in BUSES], [f"rocep{bus}s0f{half}" for bus in BUSES for half in (0, 1)]
    gb300, tray, eight, four = ["ibp3s0", "ibP2p3s0", "ibP16p3s0", "ibP18p3s0"], numbered("mlx5_", 0, 1, 3, 4), (8, NVIDIA), (4, NVIDIA)
    two_halves = [eth(name, NDR, number=index + 1, hca="MT4131", pci_id="0x1023", board="MT_0000001222", fw="40.47.1026", netdev=f"eth{index}",
                      pci=f"0000:{BUSES[index // 2]:02x}:00.{index % 2}") for index, name in enumerate(halves)]
    return [
        machine("DGX B200", "docs.nvidia.com/dgx/dgxb200-user-guide: 8 ConnectX-7, 2 dual-port BlueField-3",
                cx7(b200, board="NVD0000000054") + bf3(["mlx5_5", "mlx5_6"], "0000:51:00") + bf3(["mlx5_11", "mlx5_12"], "0000:d1:00", first=44), b200, 400, gpu=eight),
        machine("HGX B200, InfiniBand for storage", "docs.nvidia.com/dgx-superpod: storage fabric", cx7(b200_storage) +
                bf3(["mlx5_1", "mlx5_2"], "0000:51:00", make=ib, rate=NDR200) + bf3(["mlx5_7", "mlx5_8"], "0000:d1:00", first=44, make=ib, rate=NDR200),
                b200_storage, 400, gpu=eight),
        machine("DGX B300", "docs.nvidia.com/dgx/dgxb300-user-guide: 8 ConnectX-8 on the board",
                cx8(b300) + bf3(["rocep161s0f0", "rocep161s0f1"], "0000:a1:00", cabled=(True, False)), b300, 800, gpu=eight),
        machine("HGX B300, ConnectX-8 as two ports of RoCE", "docs.nvidia.com/networking: ConnectX-8 C8240", two_halves, halves, 400, gpu=eight),
        machine("GB300 NVL72, kernel's names", "docs.nvidia.com/dgx/dgxgb300-user-guide",
                cx8(gb300) + bf3(["roceP6p3s0f0", "roceP6p3s0f1"], "0006:03:00", cabled=(True, False)), gb300, 800, gpu=four),
        machine("GB200 NVL72, a BlueField-3 for InfiniBand without a cable", "docs.nvidia.com/dgx/dgxgb200-user-guide", cx7(tray) +
                bf3(["mlx5_2"], "0006:01:00", make=ib, cabled=(False,)) + bf3(["mlx5_5"], "0016:01:00", first=44), tray, 400, gpu=four),
        machine("GB200 NVL4, RoCE, a bond of BlueFields beside", "docs.nvidia.com/multi-node-nvlink", cx7(tray, make=eth, board="MT_0000000840") +
                [bonded_lag("mlx5_bond_0", 50, "bond0", hca="MT41692", board="MT_0000000884")], tray, 400, gpu=four),
        machine("DGX Spark, two cables", "build.nvidia.com/spark/connect-two-sparks", spark(True, True, True, True),
                ["rocep1s0f0", "rocep1s0f1", "roceP2p1s0f0", "roceP2p1s0f1"], 200, gpu=(1, NVIDIA)),
        machine("DGX Spark, the cable in the other socket", "forums.developer.nvidia.com: DGX Spark", other_socket(), ["rocep1s0f1", "roceP2p1s0f1"], 200, gpu=(1, NVIDIA)),
        machine("two DGX Sparks on one cable", "build.nvidia.com/spark/connect-two-sparks: netplan, link-local: [ipv4]", neighbours(), ["rocep1s0f0", "roceP2p1s0f0"], 200, gpu=(1, NVIDIA)),
        machine("GH200 NVL2, two HCAs and a BlueField-3", "docs.nvidia.com: GH200 NVL2", cx7(["ibp1s0", "ibP5p1s0"]) +
                bf3(["roceP9p1s0f0", "roceP9p1s0f1"], "0009:01:00", cabled=(True, False)), ["ibp1s0", "ibP5p1s0"], 400, gpu=(2, NVIDIA)),
        machine("JUPITER, four GH200", "fz-juelich.de: 4 x NDR200", cx7(numbered("mlx5_", range(4)), NDR200), numbered("mlx5_", range(4)), 200, gpu=four),
        machine("Vista, GH200, Ethernet without a cable", "tacc.utexas.edu: Vista", cx7(["mlx5_0"]) +
                [eth("mlx5_1", LANE25, number=9, hca="MT4117", pci_id="0x1015", fw="14.32.1010", up=False, address=False)], ["mlx5_0"], 400, gpu=(1, NVIDIA)),
        machine("Leonardo, two cards of two HDR100 ports", "leonardo-supercomputer.cineca.eu", dual_port(ib, HDR100, 2, hca="MT4123", pci_id="0x101b", fw="20.38.1002"),
                numbered("mlx5_", range(4)), 100, gpu=four),
        machine("Summit, the ports without cables disabled", "docs.olcf.ornl.gov: mlx5_0 and mlx5_3", summit("3: Disabled"), ["mlx5_0", "mlx5_3"], 100, gpu=(6, NVIDIA)),
        machine("Summit, the ports without cables polling", "docs.olcf.ornl.gov: mlx5_0 and mlx5_3", summit("2: Polling"), ["mlx5_0", "mlx5_3"], 100, gpu=(6, NVIDIA)),
        machine("XE9680, a bond of ConnectX-6 Dx beside", "dell.com: PowerEdge XE9680", cx7(numbered("mlx5_", range(6), 8, 9)) +
                [bonded_lag("mlx5_bond_0", 50, "bond0", LANE25, hca="MT4125", board="DEL0000000027", fw="22.39.2048")], numbered("mlx5_", range(6), 8, 9), 400, gpu=eight),
        machine("Grand Teton, RoCE over global IPv6", "engineering.fb.com: RoCE networks for distributed AI training", grand_teton(), numbered("mlx5_", range(8)), 400,
                gpu=eight, env={"NCCL_IB_GID_INDEX": "3"}),
    ]


def cards() -> list[Shape]:
    all_four, eight = numbered("mlx5_", range(4)), (8, NVIDIA)
    subnets = dual_port(ib, NDR200, 2)
    for index, device in enumerate(subnets):
        in_subnet([device], f"fec0:0000:0000:000{index % 2 + 1}")
    addresses_left = without_cables(dual_port(eth, HDR, 8), range(0, 16, 2))
    one_cable = dual_port(eth, HDR, 8)
    for index in range(1, 16, 2):
        one_cable[index] = eth(f"mlx5_{index}", HDR, number=index + 1, pci=f"{index // 2:04x}:18:00.1", up=False, address=False)
    pvrdma = other("vmw_pvrdma0", "40 Gb/sec (4X QDR)", 1, "0x15ad", "0x0820", "1.0.0", netdev="ens192")
    iwarp = shapes.iwarp("iwp24s0f0")
    iwarp.vendor, iwarp.pci, iwarp.pci_root = "0x8086", "0000:f9:00.0", "pci0000:f9"
    return [
        machine("a card of two HDR ports in one subnet", "docs.nvidia.com/networking: MCX653106A", dual_port(ib, HDR, 1, hca="MT4123", pci_id="0x101b", fw="20.43.1014"), all_four[:2], 200),
        machine("8 cards of two 200 Gb/s ports, one cable each", "docs.nvidia.com/networking: MCX755106AS", one_cable, [f"mlx5_{index}" for index in range(0, 16, 2)], 200, gpu=eight),
        machine("the same, cables in the second ports, addresses left on the first", "docs.nvidia.com/networking: MCX755106AS", addresses_left,
                [f"mlx5_{index}" for index in range(1, 16, 2)], 200, gpu=eight),
        machine("4 VPI cards, second ports disabled", "docs.nvidia.com/networking: MCX75510AAS", without_cables(dual_port(ib, NDR, 4), range(1, 8, 2), "3: Disabled"),
                [f"mlx5_{index}" for index in range(0, 8, 2)], 400, gpu=eight),
        machine("cards of two ports, each in a subnet of its own", "docs.nvidia.com/networking: two fabrics", subnets, all_four, 200, gpu=(4, NVIDIA)),
        machine("Thor, both ports cabled", "docs.broadcom.com: P2100G", [other(f"rocep65s0f{index}", EDR, index + 1, "0x14e4", "0x1751", "231.0.154.0", hca="BCM57508", pci=f"0000:41:00.{index}")
                                                                       for index in (0, 1)], ["rocep65s0f0", "rocep65s0f1"], 100),
        machine("a virtual machine with one function of a Thor 2", "docs.broadcom.com: SR-IOV", [other("bnxt_re0", NDR, 1, "0x14e4", "0x1819", "232.0.155.5", virtual=True)], ["bnxt_re0"], 400),
        machine("E830, two of four functions cabled", "kernel: drivers/infiniband/hw/irdma", [
            other(f"rocep23s0f{index}", HDR if index < 2 else EDR, index + 1, "0x8086", "0x12d2", "1.0", pci=f"0000:17:00.{index}", up=index < 2, address=index < 2)
            for index in range(4)], ["rocep23s0f0", "rocep23s0f1"], 200),
        machine("InfiniBand beside Intel's iWARP", "kernel: drivers/infiniband/hw/irdma", cx7(all_four) + [iwarp], all_four, 400),
        machine("Omni-Path, Ethernet beside", "cornelisnetworks.com", [hfi(0), eth("mlx5_0", LANE25, number=30, hca="MT4117", pci_id="0x1015", fw="14.32.1010")], ["hfi1_0"], 100),
        machine("Cornelis CN5000, four cards", "cornelisnetworks.com: CN5000", [hfi(index, NDR) for index in range(4)], numbered("hfi1_", range(4)), 400, gpu=(4, NVIDIA)),
        machine("VMware PVRDMA", "kernel: drivers/infiniband/hw/vmw_pvrdma", [pvrdma], ["vmw_pvrdma0"], 40),
        machine("8 rails of RoCE and two slower storage ports, no table", "docs.nvidia.com/dgx-basepod: RoCE storage", cx7(numbered("mlx5_", range(8)), make=eth, board="MT_0000000840") +
                [eth(f"mlx5_{8 + index}", HDR, number=40 + index, hca="MT4125", board="MT_0000000359", fw="22.41.1000", pci=f"0000:c1:00.{index}") for index in (0, 1)],
                numbered("mlx5_", range(8)), 400, gpu=eight),
    ]


def amd_and_clouds() -> list[Shape]:
    eight, amd, nvidia_gpus = range(8), (8, AMD), (8, NVIDIA)
    thor, ionic, rdma, oci = (numbered(prefix, eight) for prefix in ("bnxt_re", "ionic_", "rdma", "ionic_rdma"))
    rails = numbered("mlx5_", 0, range(2, 6), range(7, 10))
    flat = with_link(with_numa([ib(f"mlx5_{index}", NDR, number=index + 1, virtual=True, pci_id="0x101e", pci=f"0000:8{index}:00.0") for index in eight], "-1"), NOTHING_KNOWN)
    b300 = [eth(f"rdma{index}", NDR, number=index + 1, hca="MT4131", pci_id="0x1023", board="ORC0000000011", fw="40.46.3048", pci=f"0000:{0x10 + index // 2 * 0x18:02x}:00.{index % 2}")
            for index in range(16)]
    return [
        machine("MI325X, 8 Thor 2 and a bond of them for the front end", "docs.broadcom.com: 957608", makers(thor, "Broadcom") +
                [other("bnxt_re_bond0", HDR, 30, "0x14e4", "0x1760", "232.0.155.5", hca="BCM57608", netdev="bond0")], thor, 400, gpu=amd, hca="=" + ",".join(thor)),
        machine("MI325X, 8 Pollara, a ConnectX-7 for storage", "docs.amd.com: AI NIC cluster guide", makers(ionic, "Pensando") +
                [eth("mlx5_0", HDR, number=30, pci="0000:c1:00.0"), eth("mlx5_1", HDR, number=31, pci="0000:c1:00.1", up=False, address=False)], ionic, 400, gpu=amd),
        machine("MI325X, 8 ConnectX-7, a ConnectX-6 Lx for the host", "rocm.docs.amd.com: multi-node network", cx7(rails, make=eth, board="MT_0000000840") +
                [eth(name, LANE25, number=30 + index, hca="MT4127", board="MT_0000000531", pci_id="0x101f", fw="26.41.1000", pci=f"0000:c1:00.{index}", up=not index, address=not index)
                 for index, name in enumerate(("mlx5_1", "mlx5_6"))], rails, 400, gpu=amd),
        machine("MI355X, Pollara named by the site", "kernel: drivers/infiniband/hw/ionic", makers(rdma, "Pensando"), rdma, 400, gpu=amd),
        machine("Azure HX176-24rs", "learn.microsoft.com, HX-series", azure(1, NDR) + [accelerator(address=True)], ["mlx5_ib0"], 400, sku="Standard_HX176-24rs"),
        machine("Azure HC44rs, kernel's name", "learn.microsoft.com, HC-series", azure(1, EDR, "mlx5_", hca="MT4120", board="MSF0000000011", pci_id="0x1018") +
                [accelerator(address=True)], ["mlx5_0"], 100, sku="Standard_HC44rs"),
        machine("Azure HB368rs_v5 with MANA", "learn.microsoft.com, HBv5", azure(4, NDR200) + [mana()], numbered("mlx5_ib", range(4)), 200, sku="Standard_HB368rs_v5"),
        machine("Azure ND96isr_H200_v5, kernel's names", "learn.microsoft.com: names of RDMA devices", azure(8, NDR, "mlx5_") + [accelerator("mlx5_8", address=True)],
                numbered("mlx5_", eight), 400, sku="Standard_ND96isr_H200_v5", gpu=nvidia_gpus),
        machine("Azure HB120rs_v3 in a container without IPoIB", "azurehpc-images", [ib("mlx5_ib0", HDR, hca="MT4124", board="MSF0000000043", pci_id="0x101c", virtual=True)],
                ["mlx5_ib0"], 200, sku="Standard_HB120rs_v3"),
        machine("OCI BM.GPU.B300.8, two ports of each ConnectX-8", "docs.oracle.com: 16 x 400 Gb/s", b300 +
                [eth(f"vcn{index}", HDR, number=40 + index, hca="MT41692", board="ORC0000000008", fw="32.43.2566", address=not index) for index in (0, 1)],
                numbered("rdma", range(16)), 400, gpu=nvidia_gpus),
        machine("OCI BM.GPU.MI355X.8", "docs.oracle.com: BM.GPU.MI355X.8", makers(oci, "Pensando") +
                [eth(f"mlx5_{index}", EDR, number=40 + index, hca="MT4125", board="ORC0000000005", address=not index) for index in (0, 1)], oci, 400, gpu=amd),
        machine("Google H4D, Cloud RDMA", "cloud.google.com: H4D, irdma", [other("irdma0", HDR, 1, "0x8086", "0x1452", "1.0", virtual=True, netdev="eth1")], ["irdma0"], 200),
        machine("Alibaba, two eRDMA", "help.aliyun.com: eRDMA on GPU instances", two_erdma(), ["erdma_0", "erdma_1"], 100, gpu=nvidia_gpus),
        machine("Nebius H200, functions on a flat bus", "docs.nebius.com: InfiniBand networks", flat, numbered("mlx5_", eight), 400, gpu=nvidia_gpus),
    ]


def without_fabric() -> list[Shape]:
    return [Shape("Azure NC40ads_H100_v5 with MANA", "learn.microsoft.com", Node([mana(EDR)], *gpu_cards(1)), [], sku="Standard_NC40ads_H100_v5"),
            Shape("Azure NC80adis_H100_v5", "learn.microsoft.com", Node([accelerator("mlx5_0", address=True)], *gpu_cards(2)), [], sku="Standard_NC80adis_H100_v5"),
            Shape("AWS trn2.48xlarge, EFA", "docs.aws.amazon.com", shapes.efa(16), []),
            Shape("AWS hpc8a.96xlarge, EFA", "docs.aws.amazon.com", shapes.efa(2), []),
            Shape("E810 in iWARP mode", "kernel: drivers/infiniband/hw/irdma", Node([shapes.iwarp("iwp24s0f0")]), [])]


COUNTERS = {"0x15b3": {"out_of_sequence": "12", "packet_seq_err": "9", "local_ack_timeout_err": "0", "req_transport_retries_exceeded": "0", "rp_cnp_handled": "40", "np_cnp_sent": "38"},
            "0x14e4": {"to_retransmits": "2", "seq_err_naks_rcvd": "1", "max_retry_exceeded": "0", "oos_drop_count": "1"},
            "0x1dd8": {"req_rx_pkt_seq_err": "2", "req_tx_retry_excd_err": "0", "tx_rdma_ack_timeout": "0"}, "0x8086": {"tcpRetransSegs": "4"}}


def furnish(shape: Shape) -> Shape:
    """What real machines have beside: nodes of memory, MTUs, hardware addresses, kinds of interfaces, hw_counters."""
    devices = shape.node.devices
    for index, device in enumerate(devices):
        if device.numa == "0":
            device.numa = str(index * 2 // len(devices))

    def more(sys, dev):
        number = 0
        for device in devices:
            is_ethernet = not device.ports or device.ports[0].link_layer != InfiniBand
            for name in device.netdevs:
                number += 1
                for what, value in (("mtu", "9000" if is_ethernet else "4092"), ("type", "1" if is_ethernet else "32"), ("address", f"a0:88:c2:00:00:{number:02x}")):
                    trees.write(sys / "class/net" / name / what, getattr(device, what, value))
            for port in device.ports:
                for what, value in (COUNTERS.get(device.vendor, {}) | getattr(port, "hw_counters", {})).items():
                    trees.write(sys / f"class/infiniband/{device.name}/ports/{port.number}/hw_counters/{what}", value)
    shape.node.after.append(more)
    return shape


def healthy() -> list[Shape]:
    return nvidia() + cards() + amd_and_clouds()
