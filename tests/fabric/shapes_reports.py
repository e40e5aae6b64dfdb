"""Machines from bug reports and from lists of what clouds sell. NCCL's own line "NET/IB : Using ..." in a report, a listing, or the
seller's list of RDMA interfaces says which ports are the fabric; what the files look like is from the kernel's drivers."""

from __future__ import annotations

import shapes
from shapes import EDR, HDR, NDR, Shape, down, eth, gpus, ib
from trees import Node

FDR, LANE25, NDR200 = "56 Gb/sec (4X FDR)", "25 Gb/sec (1X EDR)", "200 Gb/sec (2X NDR)"
GBPS = {EDR: 100, HDR: 200, NDR: 400, FDR: 56, NDR200: 200, "40 Gb/sec (4X QDR)": 40, LANE25: 25}
MODELS = {FDR: ("MT4113", "0x1011"), EDR: ("MT4119", "0x1017"), HDR: ("MT4123", "0x101b"), NDR: ("MT4129", "0x1021"), NDR200: ("MT4129", "0x1021"),
          LANE25: ("MT4117", "0x1015"), "40 Gb/sec (4X QDR)": ("MT4103", "0x1007")}


def numbered(prefix: str, *ranges) -> list[str]:
    return [f"{prefix}{index}" for each in ranges for index in (each if isinstance(each, range) else [each])]


def cards(make, names, rate: str, first: int = 1, places=(), **options):
    """`places`: the PCI addresses, where the source has them."""
    hca, pci_id = MODELS[rate]
    return [make(name, rate, number=first + index, hca=hca, pci_id=pci_id, pci=places[index] if places else "", **options)
            for index, name in enumerate(names)]


def machine(title: str, source: str, make, names, rate: str, *, others=(), gpu_count: int = 8, places=(), table: str | None = "", **options) -> Shape:
    """The fabric's cards, and others beside them: functions that make devices. The table says what the owner says."""
    devices = cards(make, names, rate, places=places, **options)
    devices += [each(60 + index) for index, each in enumerate(others)]
    kind = "roce" if make is eth else "infiniband"
    line = f"ours fabric={kind} devices={len(names)} rate={GBPS[rate]}" + (f" hca=={','.join(names)}" if others else "") if table == "" else table
    return Shape(title, source, Node(devices, *(gpus(gpu_count) if gpu_count else ())), [f"{name}:1" for name in names], GBPS[rate], None, line)


def ethernet(name: str, rate: str = LANE25, up: bool = True, address: bool = True):
    hca, pci_id = MODELS[rate]
    return lambda number: eth(name, rate, number=number, hca=hca, pci_id=pci_id, up=up, address=address and up, board="MT_0000000080", fw="14.32.1010")


def unplugged(name: str, rate: str = HDR):
    hca, pci_id = MODELS[rate]
    return lambda number: down(ib(name, rate, number=number, hca=hca, pci_id=pci_id), "2: Polling")


def storage(name: str, rate: str = HDR):
    hca, pci_id = MODELS[rate]
    return lambda number: ib(name, rate, number=number, hca=hca, pci_id=pci_id, board="MT_0000000892")


NCCL, TESTS = "github.com/NVIDIA/nccl/issues/", "github.com/NVIDIA/nccl-tests/issues/"
# Seller's lists: RDMA interfaces with their addresses, and those of the virtual network (oci-dr-hpc-v2, internal/shapes/shapes.json).
OCI = "oci-dr-hpc-v2, internal/shapes/shapes.json"
A100 = ["0000:0c:00.0", "0000:0c:00.1", "0000:16:00.0", "0000:16:00.1", "0000:47:00.0", "0000:47:00.1", "0000:4b:00.0", "0000:4b:00.1",
        "0000:89:00.0", "0000:89:00.1", "0000:93:00.0", "0000:93:00.1", "0000:c3:00.0", "0000:c3:00.1", "0000:d1:00.0", "0000:d1:00.1"]
GPU4 = [*A100[:4], "0000:48:00.0", "0000:48:00.1", "0000:4c:00.0", "0000:4c:00.1", "0000:8a:00.0", "0000:8a:00.1", "0000:94:00.0", "0000:94:00.1", *A100[12:]]
EIGHT = [f"0000:{bus}:00.0" for bus in ("0c", "2a", "41", "58", "86", "a5", "bd", "d5")]
PAIRS = [f"0000:{bus}:00.{function}" for bus in ("0c", "2a", "41", "58", "86", "a5", "bd", "d5") for function in (0, 1)]
A100_NAMES = numbered("mlx5_", range(5, 9), range(1, 5), range(14, 18), range(9, 13))
H200_NAMES = numbered("mlx5_", 0, 3, 4, 5, 6, 9, 10, 11)
H200_OTHERS = [ethernet(f"mlx5_{index}", EDR) for index in (1, 2, 7, 8)]


def sold() -> list[Shape]:
    one = [("BM.HPC2.36", "mlx5_0", "0000:5e:00.0", EDR, None, 0), ("BM.Optimized3.36", "mlx5_2", "0000:98:00.0", EDR, "mlx5_0", 0),
           ("BM.GPU.T1.2", "mlx5_2", "0000:50:00.0", EDR, "mlx5_0", 2), ("BM.GPU.GU1.2", "mlx5_2", "0000:50:00.0", EDR, "mlx5_0", 2),
           ("BM.HPC.E5.128", "mlx5_2", "0000:e1:00.0", EDR, "mlx5_0", 0), ("BM.HPC.E5.144", "mlx5_2", "0000:e1:00.0", EDR, "mlx5_0", 0),
           ("BM.HPC.E5-RBR.144", "mlx5_2", "0000:e1:00.0", EDR, "mlx5_0", 0)]
    out = [machine(f"OCI {shape}", OCI, eth, [name], rate, places=[place], gpu_count=count, others=[ethernet(other)] if other else ())
           for shape, name, place, rate, other, count in one]
    out += [machine("OCI BM.GPU4.8", OCI, eth, numbered("mlx5_", range(6, 10), range(4), range(14, 18), range(10, 14)), EDR, places=GPU4,
                    others=[ethernet("mlx5_4"), ethernet("mlx5_5", up=False)])]
    out += [machine(f"OCI {shape}", OCI, eth, A100_NAMES, EDR, places=A100, others=[ethernet("mlx5_0"), ethernet("mlx5_13", up=False)])
            for shape in ("BM.GPU.B4.8", "BM.GPU.A100-v2.8", "BM.GPU.GM4.8")]
    out += [machine(f"OCI {shape}", OCI, eth, ["mlx5_0", "mlx5_2"], HDR, places=["0000:27:00.0", "0000:97:00.0"], gpu_count=4,
                    others=[ethernet(f"mlx5_{index}", EDR) for index in (1, 3, 4, 5)]) for shape in ("BM.GPU.L40S.4", "BM.GPU.L40S-NC.4")]
    out += [machine("OCI BM.GPU.H100T.8", OCI, eth, numbered("mlx5_", 0, 1, range(4, 12), range(14, 20)), HDR, places=PAIRS,
                    others=[ethernet(f"mlx5_{index}", EDR) for index in (2, 3, 12, 13)])]
    out += [machine(f"OCI {shape} with its addresses", OCI, eth, H200_NAMES, NDR, places=EIGHT, others=H200_OTHERS) for shape in ("BM.GPU.H200.8", "BM.GPU.B200.8")]
    out += [machine("OCI BM.GPU.GB200.4", OCI, eth, numbered("mlx5_", 0, 1, 3, 4), NDR, gpu_count=4, others=[ethernet("mlx5_2", HDR), ethernet("mlx5_5", HDR)],
                    places=["0000:03:00.0", "0002:03:00.0", "0010:03:00.0", "0012:03:00.0"]),
            machine("OCI BM.GPU.H100.8 with its addresses", OCI, eth, numbered("mlx5_", 0, 1, range(3, 11), range(12, 18)), HDR, places=PAIRS,
                    others=[ethernet("mlx5_2", EDR), ethernet("mlx5_11", EDR)]),
            machine("OCI BM.GPU.MI300X.8 with its addresses", OCI, eth, numbered("mlx5_", 0, range(2, 6), range(7, 10)), NDR, places=EIGHT, gpu_count=0,
                    others=[ethernet("mlx5_1", EDR), ethernet("mlx5_6", EDR)])]
    return out


def reported() -> list[Shape]:
    """Rates that a report does not tell are those of the cards that its GPUs were sold with; no test depends on them."""
    return [
        machine("four HDR cards, listed backwards", "github.com/ROCm/rccl/issues/419", ib, numbered("mlx5_", range(3, -1, -1)), HDR, gpu_count=4),
        machine("one EDR card, IPoIB", "github.com/Mellanox/nv_peer_memory/issues/56", ib, ["mlx5_0"], EDR, gpu_count=4, netdev="ib0"),
        machine("four EDR cards and an Ethernet port that NCCL took, too", NCCL + "302", ib, numbered("mlx5_", 1, 3, 0, 4), EDR, others=[ethernet("mlx5_2", EDR)]),
        machine("eight bonds, numbered from one", NCCL + "1814", eth, numbered("mlx5_bond_", range(1, 9)), HDR),
        machine("two RoCE ports of a DGX H100", TESTS + "185", eth, ["mlx5_10", "mlx5_11"], HDR),
        machine("nine bonds", NCCL + "997", eth, numbered("mlx5_bond_", range(9)), EDR),
        machine("34 RoCE functions in a pod", NCCL + "224", eth, numbered("mlx5_", 0, 2, range(4, 36)), EDR, virtual=True, gpu_count=4),
        machine("one bond", NCCL + "429", eth, ["mlx5_bond_0"], LANE25),
        machine("HGX H100, four RoCE ports, storage and management", NCCL + "1277", eth, numbered("mlx5_", 0, 3, 5, 8), NDR,
                others=[ethernet("mlx5_1", HDR), *(ethernet(f"mlx5_{index}", address=False) for index in (2, 4, 6, 7))]),
        machine("its neighbour, whose names are others", NCCL + "1277", eth, numbered("mlx5_", 0, 1, 4, 5), NDR,
                others=[ethernet("mlx5_2", HDR), *(ethernet(f"mlx5_{index}", address=False) for index in (3, 6, 7, 8))]),
        machine("eight bonds of a cloud's H20", "github.com/deepseek-ai/DeepEP/issues/106", eth, numbered("mlx5_bond_", range(8)), HDR),
        machine("eight RoCE cards in a pod, eth0 beside", NCCL + "1538", eth, numbered("mlx5_", range(8)), HDR),
        machine("eight RoCE cards beside ens2f5", "github.com/vllm-project/vllm/pull/27521", eth, numbered("mlx5_", range(8)), HDR),
        machine("four RoCE cards, numbered from one", "github.com/vllm-project/aibrix/issues/758", eth, numbered("mlx5_", range(1, 5)), HDR),
        machine("eight HCAs named by slot and rate, one for storage, a bond", "github.com/sgl-project/sglang/issues/6017", ib, numbered("ib7s400p", range(8)), NDR,
                others=[storage("ib6s200p0"), ethernet("mlx5_bond_0", EDR)]),
        machine("ConnectX-3, RoCE", "github.com/facebookresearch/deit/issues/28", eth, ["mlx4_0"], "40 Gb/sec (4X QDR)"),
        machine("DGX Spark, one cable, both halves", "github.com/NVIDIA/dgx-spark-playbooks/issues/102", eth, ["rocep1s0f0", "roceP2p1s0f0"], HDR, gpu_count=1,
                others=[ethernet("rocep1s0f1", HDR, up=False), ethernet("roceP2p1s0f1", HDR, up=False)]),
        machine("A100, four RoCE cards with one interface each", TESTS + "242", eth, numbered("mlx5_", range(4)), HDR),
        machine("four HCAs of which every other function is one", TESTS + "188", ib, numbered("mlx5_", 0, 2, 6, 8), HDR),
        machine("four HCAs of 200 Gb/s, four without a cable, two of 25", "github.com/kvcache-ai/Mooncake/issues/955", ib, numbered("mlx5_", 1, 3, 5, 7), HDR,
                others=[*(unplugged(f"mlx5_{index}") for index in (0, 2, 4, 6)), ethernet("mlx5_8"), ethernet("mlx5_9")]),
        machine("a pod with one RoCE function", "docs.redhat.com, OpenShift AI: distributed workloads, NCCL_IB_HCA=mlx5_1", eth, ["mlx5_1"], HDR, virtual=True, gpu_count=2),
        machine("eight HCAs and eno1", "github.com/stas00/ml-engineering, network debug", ib, numbered("mlx5_", range(8)), NDR),
        machine("GH200, one HCA and a bond of two", NCCL + "1291", ib, ["mlx5_2"], NDR, gpu_count=1, others=[ethernet("mlx5_bond_0", EDR)]),
        machine("Azure by path: one HCA, and the function of Accelerated Networking, which NCCL took, too",
                "github.com/stas00/ml-engineering, network debug: NET/IB : Using [0]ibP111p0s0:1/IB [1]rdmaP1111p0s2:1/RoCE", ib, ["ibP111p0s0"], HDR,
                virtual=True, others=[lambda number: shapes.accelerator("rdmaP1111p0s2", address=True)]),
        *logged(),
    ]


def logged() -> list[Shape]:
    """From published logs of which only the text was found: each line is its own source."""
    def line(title: str, text: str, *arguments, **options) -> Shape:
        return machine(title, f"a published NCCL log: {text}", *arguments, **options)
    return [
        line("one RoCE port for management, one HCA", "n013: NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_2:1/IB [RO]; OOB ibp209s0f0", ib, ["mlx5_2"], NDR,
             others=[ethernet("mlx5_0")]),
        line("eight HCAs with SHARP, numbered from one", "h100-4: NET/IB : Using [0]mlx5_1:1/IB/SHARP ... [7]mlx5_8:1/IB/SHARP [RO]; OOB ens7", ib,
             numbered("mlx5_", range(1, 9)), NDR),
        line("four RoCE functions of a notebook's pod", "dsw95381: NET/IB : Using [0]mlx5_2:1/RoCE [1]mlx5_3:1/RoCE [2]mlx5_6:1/RoCE [3]mlx5_9:1/RoCE [RO]; OOB eth0", eth,
             numbered("mlx5_", 2, 3, 6, 9), HDR, virtual=True),
        line("RoCE on a port that is named like InfiniBand", "gilbreth-i004: NET/IB : Using [0]ibp161s0:1/RoCE", eth, ["ibp161s0"], EDR, gpu_count=2),
        line("the same in another slot", "gilbreth-k023: NET/IB : Using [0]ibp65s0:1/RoCE", eth, ["ibp65s0"], EDR, gpu_count=2),
        line("four HCAs by path with addresses of IPoIB", "jzxh331: NET/Socket : Using [0]ibp24s0 [1]ibp41s0 [2]ibp154s0 [3]ibp170s0", ib,
             ["ibp24s0", "ibp41s0", "ibp154s0", "ibp170s0"], NDR, gpu_count=4),
        line("A800, two RoCE ports", "gpu-a800-28: NET/IB : Using [0]mlx5_2:1/RoCE [1]mlx5_3:1/RoCE", eth, ["mlx5_2", "mlx5_3"], HDR),
        line("four RoCE ports of eight", "NET/IB: Using [0]mlx5_0:1/RoCE [1]mlx5_3:1/RoCE [2]mlx5_5:1/RoCE [3]mlx5_6:1/RoCE", eth, numbered("mlx5_", 0, 3, 5, 6), NDR),
        line("one RoCE card of a Cray", "nid000013: NET/IB : Using [0]mlx5_0:1/RoCE ; OOB nmn0", eth, ["mlx5_0"], EDR),
        line("one HCA for each rank", "NET/IB : Using [0]mlx5_7:1/IB [RO], NCCL_IB_HCA=mlx5_7:1", ib, numbered("mlx5_", range(8)), NDR),
        line("two of four RoCE ports at 100 Gb/s", "NET/IB : Using [0]mlx5_1:1/RoCE [1]mlx5_3:1/RoCE [RO], speed=100000", eth, ["mlx5_1", "mlx5_3"], EDR, gpu_count=2,
             others=[ethernet("mlx5_0", EDR, up=False), ethernet("mlx5_2", EDR, up=False)]),
    ]


def healthy() -> list[Shape]:
    return sold() + reported()


def without_fabric() -> list[Shape]:
    """What AWS lists with EFA interfaces (docs.aws.amazon.com/AWSEC2, efa-acc-inst-types): nothing for NCCL's verbs."""
    source = "docs.aws.amazon.com/AWSEC2, efa-acc-inst-types; interfaces as in karpenter's instance-types.md"
    counts = {"p4de.24xlarge": 4, "p5e.48xlarge": 32, "p5en.48xlarge": 16, "p5.4xlarge": 1, "p6-b200.48xlarge": 8, "p6-b300.48xlarge": 16, "hpc7a.96xlarge": 2}
    return [Shape(f"AWS {name}, EFA", source, shapes.efa(count), []) for name, count in counts.items()]
