"""The verdict of LBNL Node Health Check's check_hw_ib on a sysfs tree, in two implementations.

`transcribed` is written from NHC's documentation ("check_hw_ib rate [device]: determines whether or not an active IB link is
present with the specified data rate") and from what its script was seen to do. `installed` runs the script itself where a
machine has it: /etc/nhc/scripts/lbnl_hw.nhc, or AMLDIST_NHC.
"""

from __future__ import annotations

import os
import pathlib
import subprocess

SCRIPT = pathlib.Path(os.environ.get("AMLDIST_NHC", "/etc/nhc/scripts/lbnl_hw.nhc"))


def first_line(path: pathlib.Path) -> list[str]:
    try:
        return path.read_bytes().split(b"\n")[0].decode("latin-1").split() if path.is_file() else []
    except OSError:
        return []


def word(path: pathlib.Path, index: int) -> str:
    words = first_line(path)
    return words[index] if index < len(words) else ""


def transcribed(sys: pathlib.Path, rate: str, device: str = "") -> bool:
    """Whether any port (or this one, NAME:PORT) is ACTIVE and LinkUp at exactly this rate; never without umad."""
    if word(sys / "class/infiniband_mad/abi_version", 0) in ("", "0"):
        return False
    for port in sorted(sys.glob("class/infiniband/*/ports/*")):
        name = f"{port.parents[1].name}:{port.name}"
        up = word(port / "state", 1) == "ACTIVE" and word(port / "phys_state", 1) == "LinkUp"
        if up and word(port / "rate", 0) == rate and device in ("", name):
            return True
    return False


def installed(sys: pathlib.Path, rate: str, device: str = "") -> bool:
    """The script's own, in a mount namespace where the tree is this machine's /sys/class."""
    run = ('mount -t overlay -o "lowerdir=$1/class:/sys/class" overlay /sys/class || exit 99; '
           'shift; dbg() { :; }; die() { exit 1; }; nhc_common_parse_size() { :; }; '
           'function log() { :; }; . "$1"; shift; '
           'nhc_hw_gather_data 2>/dev/null; check_hw_ib "$@"')
    done = subprocess.run(["unshare", "--mount", "--", "bash", "-c", run, "-", sys, SCRIPT, rate,
                           *([device] if device else [])], capture_output=True, text=True, timeout=20, check=False)
    assert done.returncode in (0, 1), done.stderr
    return done.returncode == 0
