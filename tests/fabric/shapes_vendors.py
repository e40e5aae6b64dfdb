"""More healthy machines: other vendors, other generations, other names. As in shapes.py the owner's word says what the
fabric is; what the files look like is from the kernel's drivers and rdma-core's rules for names."""

from __future__ import annotations

import shapes
import trees
from shapes import EDR, FDR, HDR, NDR, XDR, Shape, accelerator, add_port, azure_node, down, eth, gpus, ib, link_local, ports
from trees import Device, Ethernet, Node, Port

HDR100, NDR200, LANE25 = "100 Gb/sec (2X HDR)", "200 Gb/sec (2X NDR)", "25 Gb/sec (1X EDR)"
NAMES = "rdma-core, kernel-boot/rdma_rename.c: ib, roce, iw or rdma, then the path on the PCI bus"


def hfi(number: int, rate: str = EDR) -> Device:
    """Omni-Path: InfiniBand to the kernel, with LIDs and a fabric manager, and keys of its own."""
    port = Port(rate=rate, lid=f"0x{number + 3:x}", sm_lid="0x1", gids=trees.ib_gids(number),
                pkeys={0: "0x8001", 1: "0x7fff", 2: "0xffff"})
    return Device(f"hfi1_{number}", [port], fw_ver="1.27.0", hca_type=None, pci=f"0000:{0x5e + number:02x}:00.0",
                  board_id="Intel Omni-Path Host Fabric Interface Adapter 100 Series", pci_id="0x24f0", vendor="0x8086",
                  pci_root=f"pci0000:{number:02x}/0000:{number:02x}:01.0", guid=f"0011:7501:0174:{number:04x}")


def other(name: str, rate: str, number: int, vendor: str, pci_id: str, fw: str, **more) -> Device:
    """A RoCE card that is not NVIDIA's: no board_id, mostly no hca_type."""
    return eth(name, rate, number=number, hca=more.pop("hca", None), board=None, vendor=vendor, pci_id=pci_id, fw=fw, **more)


def socket_direct() -> Node:
    """One card on two slots: two functions on buses of their own, both for the same cable."""
    return Node([ib("mlx5_0", HDR100, number=1, hca="MT4123", pci_id="0x101b", pci="0000:17:00.0", fw="20.40.1000"),
                 ib("mlx5_1", HDR100, number=2, hca="MT4123", pci_id="0x101b", pci="0000:98:00.0", fw="20.40.1000")])


def multi_plane() -> Node:
    """ConnectX-8 with planes: for each card an SMI device for the manager of the subnet, which has no verbs."""
    cards = [ib(f"mlx5_{index}", XDR, number=index + 1, hca="MT4131", pci_id="0x1023") for index in range(4)]
    node = Node(list(cards))
    for index, card in enumerate(cards):
        def plane(sys, dev, index=index, card=card):
            function = (sys / "class/infiniband" / card.name / "device").resolve()
            own = function / "infiniband" / f"smi{index}"
            own.mkdir(parents=True)
            (sys / "class/infiniband" / own.name).symlink_to(own)
            (own / "device").symlink_to(function)
            for name, value in (("fw_ver", card.fw_ver), ("node_guid", card.guid), ("node_type", "1: CA"), ("hca_type", "MT4131")):
                trees.write(own / name, value)
            for number in (1, 2):
                trees.build_port(own / f"ports/{number}", Port(number=number, rate=NDR200, gids=None, pkeys=None, counters=None))
        node.after.append(plane)
    return node


def vlan_gids(number: int, netdev: str) -> dict[int, tuple[str, str, str]]:
    """The interface itself has no IPv4 address; its VLAN has, behind it in the table."""
    table = dict(link_local(number, netdev))
    for index, entry in trees.roce_gids(number, f"{netdev}.100").items():
        table[index + 2] = entry
    return table


def rails(prefix: str, count: int, rate: str, **options) -> list[Device]:
    return [eth(f"{prefix}{index}", rate, number=index + 1, **options) for index in range(count)]


def bond_of(number: int, rate: str = EDR) -> Device:
    return eth("mlx5_bond_0", rate, number=number, hca="MT4125", board="MT_0000000359", netdev="bond0", fw="22.41.1000")


def nvl72(rate: str, hca: str, pci_id: str) -> Node:
    """A tray: four cards for four GPUs on PCI domains of their own, and BlueFields for storage and management."""
    devices = [ib(name, rate, number=index + 1, hca=hca, pci_id=pci_id, pci=f"{domain}:03:00.0")
               for index, (name, domain) in enumerate(zip(("mlx5_0", "mlx5_1", "mlx5_4", "mlx5_5"),
                                                          ("0000", "0002", "0010", "0012")))]
    devices += [eth(name, HDR, number=index + 20, hca="MT41692", board="MT_0000000884", pci=f"{domain}:01:00.{function}",
                    address=function == 0, fw="32.41.1000")
                for index, (name, domain, function) in enumerate((("mlx5_2", "0006", 0), ("mlx5_3", "0006", 1),
                                                                  ("mlx5_6", "0016", 0), ("mlx5_7", "0016", 1)))]
    cards, modules = gpus(4)
    return Node(devices, cards, modules)


def usnic() -> Device:
    device = other("usnic_0", "40 Gb/sec (4X QDR)", 70, "0x1137", "0x00cf", "4.0(13f)")
    device.node_type = "6: usNIC UDP"
    return device


def mixed_ports() -> Node:
    """VPI: one function for the fabric, the other for Ethernet."""
    return Node([ib("mlx5_0", HDR, number=1, hca="MT4123", pci_id="0x101b", pci="0000:3b:00.0", fw="20.40.1000"),
                 eth("mlx5_1", EDR, number=2, hca="MT4123", pci_id="0x101b", pci="0000:3b:00.1", fw="20.40.1000")])


def partitioned() -> Node:
    node = Node([ib(f"mlx5_{index}", number=index + 1) for index in range(8)])
    for device in node.devices:
        device.ports[0].pkeys = {0: "0x7fff", 1: "0x8022", 2: "0x0000"}
    return node


def healthy() -> list[Shape]:
    eight = ports(*(f"mlx5_{index}" for index in range(8)))
    connectx3 = eth("mlx4_0", "40 Gb/sec (4X QDR)", number=1, hca="MT4103", board="MT_1090111019", pci_id="0x1007", fw="2.42.5000")
    add_port(connectx3, Port(number=2, link_layer=Ethernet, rate="40 Gb/sec (4X QDR)", lid="0x0", sm_lid="0x0",
                             pkeys={0: "0xffff"}, gids=trees.roce_gids(9, "ens2")))
    compute_names = ["ibp14s0", "ibp57s0", "ibp67s0", "ibp78s0", "ibp141s0", "ibp184s0", "ibp196s0", "ibp215s0"]
    named = Node([ib(name, number=index + 1, netdev=name) for index, name in enumerate(compute_names)] +
                 [eth("rocep41s0f0", EDR, number=30, hca="MT4125", pci="0000:29:00.0"),
                  eth("rocep41s0f1", EDR, number=31, hca="MT4125", pci="0000:29:00.1", address=False, up=False)])
    dpu = Node([ib(f"mlx5_{index}", number=index + 1) for index in range(8)] +
               [eth("mlx5_8", HDR, number=40, hca="MT41692", board="MT_0000000884", pci="0000:b1:00.0", fw="32.41.1000"),
                eth("mlx5_9", HDR, number=41, hca="MT41692", board="MT_0000000884", pci="0000:b1:00.1", address=False)])
    vm = Node([eth("mlx5_0", EDR, number=60, hca="MT4126", board="MT_0000000359", virtual=True, pci_id="0x101e")] +
              [ib(f"mlx5_{index}", number=index, virtual=True, pci_id="0x101e") for index in range(1, 9)])
    pollara = Node([other(f"ionic_{index}", NDR, index + 1, "0x1dd8", "0x1002", "1.117.1-a-63") for index in range(8)],
                   *gpus(8, "0x1002"))
    oci_amd = Node([eth(f"mlx5_{index}", EDR if index in (1, 6) else NDR, number=index + 1,
                        board="ORC0000000005" if index in (1, 6) else "ORC0000000007",
                        hca="MT4125" if index in (1, 6) else "MT4129") for index in range(10)], *gpus(8, "0x1002"))
    thor = Node([other(f"rocep{path}s0", NDR, index + 1, "0x14e4", "0x1760", "231.2.63.0", hca="BCM57608")
                 for index, path in enumerate((9, 42, 73, 106, 137, 168, 201, 232))], *gpus(8, "0x1002"))
    hns = Node([other(f"hns_{index}", EDR, index + 1, "0x19e5", "0xa222", "1.0", address=index < 2, up=index < 2,
                      pci=f"0000:bd:00.{index}") for index in range(4)])
    tray_of_rails = Node([eth(f"rocep{domain}p1s0f{function}", NDR, number=2 * index + function + 1, hca="MT4131", pci_id="0x1023",
                              pci=f"000{domain}:03:00.{function}", fw="40.44.1036")
                          for index, domain in enumerate((0, 2, 4, 6)) for function in (0, 1)])
    e810 = Node([other(f"rocep24s0f{index}", EDR, index + 1, "0x8086", "0x1592", "1.71", pci=f"0000:18:00.{index}") for index in range(2)])
    lag = Node([other("irdma0", HDR, 1, "0x8086", "0x1592", "1.71", netdev="bond0")])
    in_vlan = Node([eth(f"mlx5_{index}", EDR, number=index + 1, hca="MT4119", pci_id="0x1017", netdev=f"ens{index}",
                        gids=vlan_gids(index + 1, f"ens{index}")) for index in range(2)])
    lx = Node([eth(f"mlx5_{index}", LANE25, number=index + 1, hca="MT4117", board="MT_2420110034", pci_id="0x1015", fw="14.32.1010",
                   pci=f"0000:5e:00.{index}") for index in range(2)])
    virtual_only = Node(rails("mlx5_", 4, EDR, virtual=True, pci_id="0x101e", hca="MT4126", board="MT_0000000359"))
    beside_cisco = Node([ib("mlx5_0", HDR, hca="MT4123", pci_id="0x101b"), usnic()])
    cisco_roce = Node([*rails("mlx5_", 2, EDR), usnic()])
    gb200_mana = azure_node(4, 400, 4)
    gb200_mana.devices[-1] = accelerator("mlx5_an0", address=True)
    return [
        Shape("ConnectX-3 Pro, RoCE on both ports", "kernel: drivers/infiniband/hw/mlx4", Node([connectx3]), ["mlx4_0:1", "mlx4_0:2"], 40),
        Shape("ConnectX-4 Lx, RoCE at 25 Gb/s on both functions", "docs.nvidia.com/networking: ConnectX-4 Lx", lx, ports("mlx5_0", "mlx5_1"), 25),
        Shape("ConnectX-6, Socket Direct", "docs.nvidia.com/networking: Socket Direct", socket_direct(), ports("mlx5_0", "mlx5_1"), 100),
        Shape("ConnectX-6 VPI, one function of each kind", "docs.nvidia.com/networking: VPI", mixed_ports(), ["mlx5_0:1"], 200),
        Shape("ConnectX-7, names by path", NAMES, named, ports(*compute_names), 400, None, "named fabric=infiniband devices=8 rate=400"),
        Shape("ConnectX-8 with planes and SMI devices", "kernel: drivers/infiniband/core, RDMA_DEVICE_TYPE_SMI has no uverbs",
              multi_plane(), ports(*(f"mlx5_{index}" for index in range(4))), 800),
        Shape("ConnectX-7 dual-port at 200 Gb/s", "docs.nvidia.com/networking: MCX755106AS",
              Node([ib(f"mlx5_{index}", NDR200, number=index + 1, pci=f"0000:{0x17 + index // 2 * 0x40:02x}:00.{index % 2}")
                    for index in range(4)]), ports(*(f"mlx5_{index}" for index in range(4))), 200),
        Shape("H100 with a BlueField-3 in DPU mode", "docs.nvidia.com/networking: BlueField modes of operation", dpu, eight, 400, None,
              "dpu fabric=infiniband devices=8 rate=400"),
        Shape("a virtual machine: 8 InfiniBand functions and one for Ethernet", "docs.nvidia.com/networking: SR-IOV", vm,
              ports(*(f"mlx5_{index}" for index in range(1, 9))), 400),
        Shape("a virtual machine: RoCE functions only", "docs.nvidia.com/networking: SR-IOV", virtual_only,
              ports(*(f"mlx5_{index}" for index in range(4))), 100),
        Shape("8 rails of RoCE and a bond for management", "docs.nvidia.com/networking: RoCE over LAG",
              Node([*rails("mlx5_", 8, NDR), bond_of(40)]), eight, 400, None, "rails fabric=roce devices=8 rate=400"),
        Shape("RoCE on VLANs", "docs.kernel.org: GIDs of a VLAN's interface are its device's", in_vlan, ports("mlx5_0", "mlx5_1"), 100),
        Shape("GB200 NVL72 tray with BlueFields", "docs.nvidia.com/dgx/dgxgb200-user-guide", nvl72(NDR, "MT4129", "0x1021"),
              ports("mlx5_0", "mlx5_1", "mlx5_4", "mlx5_5"), 400, None, "tray fabric=infiniband devices=4 rate=400 gpus=4"),
        Shape("GB300 NVL72 tray with ConnectX-8", "docs.nvidia.com/dgx/dgxgb300-user-guide", nvl72(XDR, "MT4131", "0x1023"),
              ports("mlx5_0", "mlx5_1", "mlx5_4", "mlx5_5"), 800, None, "tray fabric=infiniband devices=4 rate=800 gpus=4"),
        Shape("GB300 tray, RoCE on two functions of each card", "docs.oracle.com: BM.GPU.GB300.4 has 8 x 400 Gb/s", tray_of_rails,
              [f"rocep{domain}p1s0f{function}:1" for domain in (0, 2, 4, 6) for function in (0, 1)], 400, None,
              "tray8 fabric=roce devices=8 rate=400"),
        Shape("Azure GB200 with Accelerated Networking", "learn.microsoft.com: ND GB200 v6", gb200_mana,
              ports(*(f"mlx5_ib{index}" for index in range(4))), 400, "Standard_ND128isr_NDR_GB200_v6"),
        Shape("MI300X, 8 AMD Pollara", "kernel: drivers/infiniband/hw/ionic", pollara, ports(*(f"ionic_{index}" for index in range(8))), 400,
              None, "pollara fabric=roce devices=8 rate=400"),
        Shape("MI300X, 8 Broadcom Thor 2 by path", NAMES, thor, ports(*(device.name for device in thor.devices)), 400),
        Shape("OCI BM.GPU.MI300X.8", "oracle-quickstart/oci-hpc: hca list of the shape", oci_amd,
              ports(*(f"mlx5_{index}" for index in (0, 2, 3, 4, 5, 7, 8, 9))), 400, "BM.GPU.MI300X.8"),
        Shape("Omni-Path, two cards", "kernel: drivers/infiniband/hw/hfi1", Node([hfi(0), hfi(1)]), ports("hfi1_0", "hfi1_1"), 100, None,
              "opa fabric=infiniband devices=2 rate=100"),
        Shape("Cornelis CN5000", "kernel: drivers/infiniband/hw/hfi1", Node([hfi(0, NDR)]), ["hfi1_0:1"], 400),
        Shape("Intel E810 by path", NAMES, e810, ports("rocep24s0f0", "rocep24s0f1"), 100, None, "e810 fabric=roce devices=2 rate=100"),
        Shape("Intel E810 in a bond", "docs.kernel.org: irdma over LAG", lag, ["irdma0:1"], 200),
        Shape("Marvell FastLinQ", "kernel: drivers/infiniband/hw/qedr",
              Node([other(f"qedr{index}", EDR, index + 1, "0x1077", "0x1644", "8.59.1.0") for index in range(2)]), ports("qedr0", "qedr1"), 100),
        Shape("Kunpeng 920, two of four functions cabled", "kernel: drivers/infiniband/hw/hns", hns, ports("hns_0", "hns_1"), 100),
        Shape("InfiniBand beside a Cisco usNIC", "kernel: drivers/infiniband/hw/usnic", beside_cisco, ["mlx5_0:1"], 200),
        Shape("RoCE beside a Cisco usNIC", "kernel: drivers/infiniband/hw/usnic: no connected queue pairs", cisco_roce,
              ports("mlx5_0", "mlx5_1"), 100),
        Shape("a partition of its own at index 1", "docs.nvidia.com/deeplearning/nccl: NCCL_IB_PKEY", partitioned(), eight, 400,
              env={"NCCL_IB_PKEY": "1"}),
        Shape("QDR, ConnectX-2", "kernel: drivers/infiniband/hw/mlx4",
              Node([ib("mlx4_0", "40 Gb/sec (4X QDR)", hca="MT26428", board="MT_0D90110009", pci_id="0x673c", fw="2.9.1000")]), ["mlx4_0:1"], 40),
        Shape("FDR10 and a second card without a cable", "kernel: drivers/infiniband/core/sysfs.c, rate_show",
              Node([ib("mlx4_0", "40 Gb/sec (4X FDR10)", number=1, hca="MT4099", pci_id="0x1003", fw="2.42.5000"),
                    down(ib("mlx4_1", FDR, number=2, hca="MT4099", pci_id="0x1003", fw="2.42.5000"))]), ["mlx4_0:1"], 40),
    ]


def without_fabric() -> list[Shape]:
    """Nothing for NCCL's verbs: passes by default, and must not pass under `require`."""
    slingshot = Node([])
    slingshot.after.append(lambda sys, dev: [trees.write(sys / f"class/net/hsn{index}/operstate", "up") for index in range(4)])
    return [
        Shape("Slingshot 11", "kernel out of tree: cxi has no RDMA device; libfabric is the way", slingshot, []),
        Shape("AWS p4d.24xlarge, EFA", "docs.aws.amazon.com/AWSEC2, efa-acc-inst-types", shapes.efa(4), []),
        Shape("AWS p6-b300.48xlarge, EFA", "docs.aws.amazon.com/AWSEC2, efa-acc-inst-types", shapes.efa(16), []),
        Shape("Intel X722, iWARP", "kernel: drivers/infiniband/hw/irdma (RDMA_NODE_RNIC)", Node([shapes.iwarp("irdma0")]), []),
        Shape("Cisco usNIC alone", "kernel: drivers/infiniband/hw/usnic", Node([usnic()]), []),
        Shape("GCP a3-megagpu-8g: gVNIC only", "cloud.google.com/compute/docs/gpus: GPUDirect-TCPXO", Node([], *gpus(8)), []),
    ]
