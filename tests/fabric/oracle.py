"""What the field says about a machine, written from its own documents and not from our code.

* azurehpc-health-checks, NHC's check_hw_ib: a port that is expected is ACTIVE and LinkUp at its rate.
* The InfiniBand specification: a unicast LID (1 to 0xbfff) and a subnet manager's LID; a partition key with bit 15 set.
* NCCL, net_ib: which ports it uses (state, link layer, NCCL_IB_HCA), which entry of the P_Key table (NCCL_IB_PKEY, an
  index) and which GID; and that it must not be given ports of two link layers or of another network.

`refused()` says whether a job that requires the fabric may start. It knows what the owner of the machine says about its
fabric (shapes.Shape), which our code does not.
"""

from __future__ import annotations

import re

import shapes
from trees import Ethernet, InfiniBand, Port


# ------------------------------------------------------------------------------------------ NCCL_IB_HCA, from NCCL's text

def atoi(text: str) -> int:
    """C's atoi(), with its range."""
    match = re.match(r"[ \t\n\v\f\r]*([+-]?[0-9]+)", text)
    number = int(match.group(1)) if match else 0
    number = max(-2**63, min(2**63 - 1, number))  # strtol saturates, and the result is cut to an int
    return (number + 2**31) % 2**32 - 2**31


def parse_list(text: str) -> list[tuple[str, int]]:
    """parseStringList() of NCCL 2.30: strtok at commas, fields at colons; 32 entries, names of 63 bytes."""
    out = []
    for entry in text.split(","):
        fields = entry.split(":")
        if fields[0] and len(out) < 32:
            out.append((fields[0][:63], atoi(fields[1]) if len(fields) > 1 and fields[1] else -1))
    return out


def parse_list_before(text: str) -> list[tuple[str, int]]:
    """The parser of the releases before: character by character, a second '^' or '=' skipped, an empty port is 0."""
    if text[:1] in ("^", "="):
        text = text[1:]
    out, name, index = [], "", 0
    while len(out) < 32:
        char = text[index] if index < len(text) else ""
        if char == ":":
            if name:
                out.append((name, atoi(re.split(r"[,:]", text[index + 1:])[0])))
                name = ""
            while char not in (",", ""):
                index += 1
                char = text[index] if index < len(text) else ""
        elif char in (",", ""):
            if name:
                out.append((name, -1))
                name = ""
        else:
            name += char
        if char == "":
            break
        index += 1
    return out


def nccl_takes(selection: str, device: str, port: int, parse=parse_list) -> bool:
    """Whether NCCL would look at this port, by its state and link layer aside."""
    negative = selection.startswith("^")
    selection = selection[1:] if negative else selection
    exact = selection.startswith("=")
    entries = parse(selection[1:] if exact else selection)
    if not entries:
        found = True
    else:
        found = any((device == name if exact else device.startswith(name)) and wanted in (-1, port)
                    for name, wanted in entries)
    return found != negative


# ------------------------------------------------------------------------------------------------------- the verdict

def number(text, base=10):
    try:
        return int(text, base)
    except (TypeError, ValueError):
        return None


def text_of(value) -> str:
    """What a reader of the file gets: one printable line, or nothing."""
    if isinstance(value, bytes):
        value = value.decode("latin-1").rstrip("\n")
    value = (value or "").strip()
    return value if len(value) <= 4096 and all(" " <= char < "\x7f" for char in value) else ""


def port_is_sick(port: Port, rate: float, env: dict[str, str], layer: str, all_six: bool = False) -> str:
    """Why a port that belongs to the fabric cannot do its work; empty: it can."""
    state = re.fullmatch(r"([0-9]+): *(?:ACTIVE)|([0-9]+)", text_of(port.state))
    if not state or int(state.group(1) or state.group(2)) != 4:
        return "state"
    phys = re.match(r"([0-9]+)", text_of(port.phys_state))
    if port.phys_state is not None and (not phys or int(phys.group(1)) != 5):
        return "phys_state"
    if text_of(port.link_layer) != layer:
        return "link_layer"
    speed = re.fullmatch(r"([0-9]+(?:\.[0-9])?) Gb/sec \(([0-9]+)X ?(.*)\)", text_of(port.rate))
    if not speed or float(speed.group(1)) < rate:
        return "rate"
    if layer == InfiniBand:
        lid, manager = (number(text_of(value), 16) if text_of(value).startswith("0x") else None
                        for value in (port.lid, port.sm_lid))
        if lid is None or manager is None or not 0 < lid < 0xc000 or not 0 < manager < 0xc000:
            return "lid"
        return pkey_is_sick(port, env) or infiniband_gid_is_sick(port)
    return roce_gid_is_sick(port, env, all_six)


def pkey_is_sick(port: Port, env: dict[str, str]) -> str:
    keys = {index: number(text_of(key), 16) for index, key in (port.pkeys or {}).items()}
    full = [key for key in keys.values() if key is not None and key & 0x8000 and key & 0x7fff]  # 0x8000: of no partition
    if not keys or None in keys.values() or not full:
        return "pkey"
    if "NCCL_IB_PKEY" in env and not keys.get(int(env["NCCL_IB_PKEY"]), 0) & 0x8000:
        return "pkey index"
    return ""


def infiniband_gid_is_sick(port: Port) -> str:
    gid = (port.gids or {}).get(0, (shapes.NONE, "", ""))[0]
    return "gid" if gid in (shapes.NONE, "fe80:0000:0000:0000:0000:0000:0000:0000") else ""


def roce_gid_is_sick(port: Port, env: dict[str, str], all_six: bool) -> str:
    six = env.get("NCCL_IB_ADDR_FAMILY") == "AF_INET6"

    def usable(entry) -> bool:
        gid, kind, _ = entry
        mapped = gid.startswith("0000:0000:0000:0000:0000:ffff:")
        routable = gid != shapes.NONE and not gid.startswith("fe80:0000:0000:0000:")
        return routable and kind == "RoCE v2" and mapped != six

    table = port.gids or {}
    if all_six:  # then NCCL_IB_GID_INDEX is set for the job
        return "" if any(entry[1] == "RoCE v2" and entry[0].startswith("fd") for entry in table.values()) else "gid"
    if "NCCL_IB_GID_INDEX" in env:
        chosen = table.get(int(env["NCCL_IB_GID_INDEX"]))
        return "" if chosen and chosen[0] != shapes.NONE else "gid index"
    return "" if any(usable(entry) for entry in table.values()) else "gid"


def refused(shape: shapes.Shape) -> str:
    """Why no job that requires this fabric may start; empty: it may."""
    if not shape.fabric:
        return "no fabric"
    present = {f"{device.name}:{port.number}": (device, port) for device in shape.node.devices for port in device.ports}
    layers = {text_of(present[name][1].link_layer) for name in shape.fabric if name in present}
    told = re.search(r"fabric=(\w+)", shape.table or "")  # what the owner says counts where the only port is in another mode
    is_infiniband = told.group(1) == "infiniband" if told else InfiniBand in layers or (shape.sku or "").startswith("Standard_")
    layer = InfiniBand if is_infiniband else Ethernet
    selection = shape.env.get("NCCL_IB_HCA", "")
    wanted = [name for name in shape.fabric if not selection or nccl_takes(selection, name.rpartition(":")[0], int(name[-1]))]
    for name in shape.fabric:
        if name not in present:
            return f"{name} is lost"
    all_six = not shape.env and not any(gid.startswith("0000:0000:0000:0000:0000:ffff:") for name in wanted
                                        for gid, _, _ in (present[name][1].gids or {}).values())
    for name in wanted:
        if present[name][0].vendor == "0x1ded":
            continue  # Alibaba's eRDMA: an RNIC that NCCL uses
        if not present[name][0].node_type.startswith("1:"):
            return f"{name} is no channel adapter"  # rdma/ib_verbs.h: RDMA_NODE_IB_CA
        why = port_is_sick(present[name][1], shape.rate, shape.env, layer, all_six)
        if why:
            return f"{name}: {why}"
    if not wanted:
        return "NCCL_IB_HCA selects nothing"
    if selection:
        for name, (device, port) in present.items():
            other = port.link_layer in (InfiniBand, Ethernet) and text_of(port.state).startswith("4")
            if name not in shape.fabric and other and device.master and nccl_takes(selection, device.name, port.number):
                return f"NCCL_IB_HCA takes {name}"
    return ""
