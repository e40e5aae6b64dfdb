"""Fabricated nodes: folders that look like /sys and /dev of a machine with RDMA devices.

Formats are the kernel's (drivers/infiniband/core/sysfs.c) and those of published listings. Nothing here knows how
aml-dist judges them.
"""

from __future__ import annotations

import copy
import dataclasses
import fcntl
import os
import pathlib

InfiniBand, Ethernet = "InfiniBand", "Ethernet"


@dataclasses.dataclass
class Port:
    number: int = 1
    state: str | bytes | None = "4: ACTIVE"
    phys_state: str | bytes | None = "5: LinkUp"
    link_layer: str | bytes | None = InfiniBand
    rate: str | bytes | None = "400 Gb/sec (4X NDR)"
    lid: str | bytes | None = "0x1a"
    sm_lid: str | bytes | None = "0x1"
    pkeys: dict[int, str] | None = dataclasses.field(default_factory=lambda: {0: "0x8018", 1: "0x7fff", 2: "0x0000"})
    gids: dict[int, tuple[str, str, str]] | None = None  # index: (gid, type, netdev)
    counters: dict[str, str | bytes] | None = dataclasses.field(default_factory=lambda: {
        "symbol_error": "0", "link_error_recovery": "0", "link_downed": "0", "port_rcv_errors": "0",
        "port_xmit_discards": "0"})


@dataclasses.dataclass
class Device:
    name: str
    ports: list[Port]
    fw_ver: str | bytes | None = "28.41.1000"
    board_id: str | None = "MSF0000000010"
    hca_type: str | None = "MT4129"
    guid: str = "0015:5dff:fe33:ff00"
    pci: str | None = None                      # "0000:17:00.0"; None: no PCI bus (soft-RoCE)
    pci_root: str = "pci0000:00/0000:00:01.0"   # bridge that the card hangs below
    pci_id: str | None = "0x1021"
    numa: str | None = "0"
    link: tuple[str, str, str, str] | None = ("32.0 GT/s PCIe", "32.0 GT/s PCIe", "16", "16")
    virtual: bool = False
    netdevs: dict[str, tuple[str, str]] = dataclasses.field(default_factory=dict)  # name: (operstate, losses)
    uverbs: str | None = None
    vendor: str = "0x15b3"
    node_type: str | None = "1: CA"
    master: tuple[str, str] | None = None       # of its interfaces: (name, driver), such as ("eth0", "hv_netvsc")
    pci_class: str | None = None                # None: by the first port's link layer


@dataclasses.dataclass
class Gpu:
    pci: str
    pci_root: str = "pci0000:00/0000:00:01.0"
    numa: str = "0"
    vendor: str = "0x10de"
    pci_class: str = "0x030200"
    driver: str | None = None
    link: tuple[str, str, str, str] | None = None   # as Device's; an idle GPU's speed is low


@dataclasses.dataclass
class Node:
    devices: list[Device]
    gpus: list[Gpu] = dataclasses.field(default_factory=list)
    modules: dict[str, str | None] = dataclasses.field(default_factory=dict)  # name: version
    has_class: bool = True
    dev_nodes: dict[str, int] | None = None     # uverbs name: mode; None: one for each device
    after: list = dataclasses.field(default_factory=list)  # functions of (sys folder, dev folder), at the end

    def copy(self) -> Node:
        return copy.deepcopy(self)

    def port(self, index: int = 0, port: int = 0) -> Port:
        return self.devices[index].ports[port]

    def build(self, root: pathlib.Path) -> tuple[pathlib.Path, pathlib.Path]:
        sys, dev = root / "sys", root / "dev"
        (sys / "class").mkdir(parents=True)
        (sys / "bus/pci/devices").mkdir(parents=True)
        if self.has_class:
            (sys / "class/infiniband").mkdir()
            (sys / "class/infiniband_verbs").mkdir()
        for index, device in enumerate(self.devices):
            build_device(sys, device, device.uverbs or f"uverbs{index}")
        for gpu in self.gpus:
            folder = pci_folder(sys, gpu.pci_root, gpu.pci)
            write(folder / "class", gpu.pci_class)
            if gpu.driver:
                (folder / "driver").symlink_to(f"../../../bus/pci/drivers/{gpu.driver}")
            write(folder / "vendor", gpu.vendor)
            write_link(folder, gpu.link)
            write(folder / "numa_node", gpu.numa)
        for name, version in self.modules.items():
            (sys / "module" / name).mkdir(parents=True)
            if version:
                write(sys / "module" / name / "version", version)
        build_dev(dev, self)
        for change in self.after:
            change(sys, dev)
        return sys, dev


def write(path: pathlib.Path | str, value: str | bytes | None) -> None:
    """By the system's calls: a run of the suite writes a million of these files."""
    if value is None:
        return
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path))
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    os.write(file, value if isinstance(value, bytes) else f"{value}\n".encode())
    os.close(file)


def write_link(folder: pathlib.Path, link: tuple[str, str, str, str] | None) -> None:
    for name, value in zip(("current_link_speed", "max_link_speed", "current_link_width", "max_link_width"), link or ()):
        write(folder / name, value)


def pci_folder(sys: pathlib.Path, root: str, address: str) -> pathlib.Path:
    folder = sys / "devices" / root / address
    folder.mkdir(parents=True)
    (sys / "bus/pci/devices" / address).symlink_to(folder)
    return folder


def build_device(sys: pathlib.Path, device: Device, uverbs: str) -> None:
    if device.pci:
        pci = pci_folder(sys, device.pci_root, device.pci)
        own = pci / "infiniband" / device.name
        build_pci(pci, device)
    else:
        pci = None
        own = sys / "devices/virtual/infiniband" / device.name
    own.mkdir(parents=True)
    (sys / "class/infiniband" / device.name).symlink_to(own)
    if pci:
        (own / "device").symlink_to(pci)
    for name in ("fw_ver", "board_id", "hca_type"):
        write(own / name, getattr(device, name))
    write(own / "node_guid", device.guid)
    # What ibstat wants to see.
    write(own / "node_type", device.node_type)
    write(own / "hw_rev", "0")
    write(own / "sys_image_guid", device.guid)
    write(own / "node_desc", f"{device.name} of a fabricated node")
    for port in device.ports:
        build_port(own / "ports" / str(port.number), port)
    write(sys / "class/infiniband_verbs" / uverbs / "ibdev", device.name)
    for name, (operstate, losses) in device.netdevs.items():
        if pci:
            (pci / "net" / name).mkdir(parents=True)
        write(sys / "class/net" / name / "operstate", operstate)
        write(sys / "class/net" / name / "carrier_down_count", losses)
        if device.master:
            enslave(sys, name, *device.master)


def enslave(sys: pathlib.Path, name: str, master: str, driver: str) -> None:
    """As the kernel links a virtual function's interface with the one above it."""
    above = sys / "class/net" / master
    if not above.exists():
        write(above / "operstate", "up")
        (above / "device").mkdir()
        (above / "device/driver").symlink_to(f"../../../../bus/vmbus/drivers/{driver}")
    (sys / "class/net" / name / "master").symlink_to(f"../{master}")
    (above / f"lower_{name}").symlink_to(f"../{name}")


def build_pci(pci: pathlib.Path, device: Device) -> None:
    write(pci / "vendor", device.vendor)
    infiniband = bool(device.ports) and device.ports[0].link_layer == InfiniBand
    write(pci / "class", device.pci_class or ("0x020700" if infiniband else "0x020000"))
    (pci / "driver").symlink_to("../../../bus/pci/drivers/mlx5_core")
    write(pci / "device", device.pci_id)
    write(pci / "numa_node", device.numa)
    write_link(pci, device.link)
    if device.virtual:
        (pci / "physfn").symlink_to("../0000:00:00.0")


def build_port(folder: pathlib.Path, port: Port) -> None:
    os.makedirs(folder)
    for name in ("state", "phys_state", "link_layer", "rate", "lid", "sm_lid"):
        write(f"{folder}/{name}", getattr(port, name))
    for name, value in (("cap_mask", "0xa651e848"), ("sm_sl", "0"), ("lid_mask_count", "0")):
        write(f"{folder}/{name}", value)
    if port.pkeys is not None:
        os.mkdir(f"{folder}/pkeys")
        for index, key in port.pkeys.items():
            write(f"{folder}/pkeys/{index}", key)
    if port.gids is not None:
        os.mkdir(f"{folder}/gids")
        for index, (gid, kind, netdev) in port.gids.items():
            write(f"{folder}/gids/{index}", gid)
            if kind:
                write(f"{folder}/gid_attrs/types/{index}", kind)
            if netdev:
                write(f"{folder}/gid_attrs/ndevs/{index}", netdev)
    for name, value in (port.counters or {}).items():
        write(f"{folder}/counters/{name}", value)


def build_dev(dev: pathlib.Path, node: Node) -> None:
    nodes = node.dev_nodes
    if nodes is None:
        nodes = {device.uverbs or f"uverbs{index}": 0o666 for index, device in enumerate(node.devices)}
    (dev / "infiniband").mkdir(parents=True)
    for name, mode in nodes.items():
        path = dev / "infiniband" / name
        path.touch()
        path.chmod(mode)


class DevicePlace:
    """/dev/infiniband as a place to mount on, as long as any test on this machine needs it. To remove it would remove
    other tests' mounts, so whoever is the last does."""

    PATH = pathlib.Path("/dev/infiniband")
    MARK = pathlib.Path("/dev/infiniband/.made-by-aml-dist-tests")

    def __init__(self) -> None:
        self.lock = open("/run/lock/aml-dist-tests-dev.lock", "w")
        fcntl.flock(self.lock, fcntl.LOCK_SH)
        if not self.PATH.exists():
            self.PATH.mkdir(exist_ok=True)
            self.MARK.touch()

    def close(self) -> None:
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self.MARK.exists():
                self.MARK.unlink()
                self.PATH.rmdir()
        except BlockingIOError:
            pass  # somebody else still needs it
        self.lock.close()


# ---------------------------------------------------------------------------------------------- published healthy nodes

def ib_gids(number: int) -> dict[int, tuple[str, str, str]]:
    return {0: (f"fe80:0000:0000:0000:0015:5dff:fe33:ff{number:02x}", "IB/RoCE v1", ""),
            1: ("0000:0000:0000:0000:0000:0000:0000:0000", "", "")}


def roce_gids(last: int, netdev: str = "eth0") -> dict[int, tuple[str, str, str]]:
    """What the kernel makes for one interface with an IPv4 address 10.0.0.LAST."""
    local = f"fe80:0000:0000:0000:0a00:27ff:fe00:00{last:02x}"
    mapped = f"0000:0000:0000:0000:0000:ffff:0a00:00{last:02x}"
    return {0: (local, "IB/RoCE v1", netdev), 1: (local, "RoCE v2", netdev), 2: (mapped, "IB/RoCE v1", netdev),
            3: (mapped, "RoCE v2", netdev), 4: ("0000:0000:0000:0000:0000:0000:0000:0000", "", "")}


def ib_device(index: int, rate: str, *, prefix: str = "mlx5_ib", hca: str = "MT4129", pci_id: str = "0x101e",
              virtual: bool = True, fw: str = "28.41.1000") -> Device:
    port = Port(rate=rate, lid=f"0x{0x100 + index:x}", gids=ib_gids(index))
    return Device(f"{prefix}{index}", [port], fw_ver=fw, hca_type=hca, pci=f"0{index + 1:03x}:00:00.0",
                  pci_root=f"pci{index:04x}:00/{index:04x}:00:01.0", pci_id=pci_id, virtual=virtual,
                  numa=str(index // 4), guid=f"0015:5dff:fe33:ff{index:02x}", netdevs={f"ib{index}": ("up", "1")})


def accelerated_networking(number: int = 0) -> Device:
    """Azure's Ethernet function beside the InfiniBand ones: NCCL would take it."""
    port = Port(link_layer=Ethernet, rate="40 Gb/sec (4X QDR)", lid="0x0", sm_lid="0x0", pkeys={0: "0xffff"},
                gids=roce_gids(5))
    return Device(f"mlx5_an{number}", [port], fw_ver="14.30.5000", board_id="MSF0000000012", hca_type="MT4118",
                  pci="f000:00:02.0", pci_root="pcif000:00/f000:00:01.0", pci_id="0x101a", virtual=True,
                  guid="6045:bdff:fe00:0001", netdevs={"eth1": ("up", "0")})


def azure(devices: int, rate: str, gpus: int, **options) -> Node:
    """A VM of one of Azure's sizes with InfiniBand."""
    ib = [ib_device(index, rate, **options) for index in range(devices)]
    cards = [Gpu(f"1{index:03x}:00:00.0", f"pci{index:04x}:00/{index:04x}:00:01.0", str(index // 4))
             for index in range(gpus)]
    modules = {"mlx5_core": "24.04", "mlx5_ib": "24.04"}
    if gpus:
        modules |= {"nvidia": "535.161.08", "nvidia_peermem": "535.161.08"}
    return Node(ib + [accelerated_networking()], cards, modules)


def h100_bare() -> Node:
    """A bare-metal H100 node as published: eight ConnectX-7 and one Ethernet bond."""
    node = azure(8, "400 Gb/sec (4X NDR)", 8, prefix="mlx5_", pci_id="0x1021", virtual=False)
    bond = accelerated_networking()
    bond.name, bond.pci_id, bond.virtual, bond.hca_type = "mlx5_bond_0", "0x101d", False, "MT4125"
    bond.ports[0].rate = "100 Gb/sec (4X EDR)"
    node.devices[-1] = bond
    return node


def roce(devices: int = 2, rate: str = "100 Gb/sec (4X EDR)") -> Node:
    out = []
    for index in range(devices):
        port = Port(link_layer=Ethernet, rate=rate, lid="0x0", sm_lid="0x0", pkeys={0: "0xffff"},
                    gids=roce_gids(index + 1, f"ens{index}"))
        out.append(Device(f"mlx5_{index}", [port], fw_ver="16.35.2000", hca_type="MT4119", pci_id="0x1017",
                          board_id="MT_0000000080", pci=f"0000:{index + 1:02x}:00.0",
                          pci_root=f"pci0000:00/0000:00:{index + 1:02x}.0", guid=f"b859:9f03:0000:00{index:02x}",
                          netdevs={f"ens{index}": ("up", "2")}))
    return Node(out, modules={"mlx5_core": None})


def soft_roce() -> Node:
    """rdma_rxe on a virtual interface: no PCI, no counters folder, no firmware worth the name."""
    port = Port(link_layer=Ethernet, rate="2.5 Gb/sec (1X SDR)", lid="0x0", sm_lid="0x0", pkeys={0: "0xffff"},
                gids=roce_gids(1, "va"), counters=None)
    return Node([Device("rxe0", [port], fw_ver="", board_id=None, hca_type=None, pci=None)])


def efa() -> Node:
    """AWS's adapter: a device of the class whose ports are neither InfiniBand nor Ethernet."""
    port = Port(link_layer="Unspecified", rate="100 Gb/sec (4X EDR)", lid="0x0", sm_lid="0x0",
                pkeys={0: "0xffff"}, gids={0: ("fe80:0000:0000:0000:0411:22ff:fe33:4455", "", "")}, counters=None)
    return Node([Device("rdmap0s6", [port], fw_ver="0.0.0.0", board_id=None, hca_type="EFA 0xefa1", pci="0000:00:06.0",
                        pci_id="0xefa1", link=None)])
