"""What a call of the kernel touches, in words: "read /etc/hosts", "send UDP to srun". And the list of all that may be, root_touches.txt."""

import pathlib
import re

from system_calls import Call

LIST = pathlib.Path(__file__).parent / "root_touches.txt"
WAYS = (("O_CREAT", "create"), ("O_DIRECTORY", "list"), ("O_WRONLY", "write"), ("O_RDWR", "write"), ("", "read"))
OF_PATH = {"mkdir": "create", "unlink": "remove", "unlinkat": "remove", "rmdir": "remove", "readlink": "look up", "readlinkat": "look up",
           "newfstatat": "look up", "stat": "look up", "lstat": "look up", "access": "look up", "faccessat": "look up", "faccessat2": "look up",
           "statfs": "look up", "statx": "look up"}
KINDS = {"SOCK_STREAM": "TCP", "SOCK_DGRAM": "UDP", "SOCK_RAW": "raw"}


def where(path: str, plugin_folder: str) -> str:
    """Without numbers and names that are another machine's."""
    path = path.replace(plugin_folder, "PLUGIN-FOLDER").replace(plugin_folder.rpartition("/")[0] + "/aml-dist", "PLUGIN-FOLDER/../aml-dist")
    path = "SITE-FILE" if path.endswith("/site.conf") else path
    path = re.sub(r"/class/net/[^/]+/", "/class/net/INTERFACE/", re.sub(r"/devices/[0-9a-f]+:[0-9a-f:.]+", "/devices/DEVICE", path))
    return re.sub(r"\d+", "N", path)


def address(text: str) -> str:
    if path := re.search(r'sun_path=@?"([^"]*)"', text):
        return f"Unix {path[1]}"
    if "AF_NETLINK" in text:
        return "netlink"
    port = re.search(r"port=htons\((\d+)\)", text)
    return "slurmctld" if port and 6817 <= int(port[1]) <= 6820 else "IP"


def touch_of(call: Call, plugin_folder: str) -> str | None:
    """None for what only follows from another call: of a descriptor that is open."""
    name, _, rest = call.text.partition("(")
    path = re.search(r'^(?:AT_FDCWD(?:<[^>]*>)?, |\d+<[^>]*>, )?"([^"]+)"', rest)
    if name in ("open", "openat") and path:
        return f"{next(way for flag, way in WAYS if flag in rest)} {where(path[1], plugin_folder)}"
    if name in OF_PATH:
        return f"{OF_PATH[name]} {where(path[1], plugin_folder)}" if path else None
    if name == "flock":
        return f"lock {where(rest.partition('<')[2].partition('>')[0], plugin_folder)}"
    if name == "socket":
        family, kind = re.match(r"AF_(\w+), (SOCK_\w+)", rest).groups()
        return f"open {KINDS[kind]} socket ({family})"
    if name in ("bind", "connect", "sendto", "sendmsg"):
        to_srun = name == "sendto" and '"aml-dist;' in rest
        return "send a datagram to srun" if to_srun else f"{name} {address(rest)}"
    if name in ("listen", "setsockopt"):
        return name
    if name in ("kill", "tgkill", "pidfd_send_signal"):
        signal = re.search(r"SIG\w+|, 0", rest)
        return f"{name} {signal[0].lstrip(', ') if signal else rest}"
    return "start a copy of itself" if name in ("clone", "clone3", "fork", "vfork") else name


def listed() -> list[tuple[re.Pattern[str], str, str]]:
    """Pattern of a touch, when it happens, what for."""
    lines = [line for line in LIST.read_text().splitlines() if line and not line.startswith("#")]
    rows = [[field.strip() for field in line.split("|")] for line in lines]
    assert all(len(row) == 3 and all(row) for row in rows), LIST
    return [(re.compile(row[0].replace("\\p", "|")), row[1], row[2]) for row in rows]
