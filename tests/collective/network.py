"""Nodes with a network between them, on one machine: each is a network name space. Needs root and iproute2."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def reason_to_skip() -> str:
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return "network namespaces need root and iproute2"
    name = f"aml{os.getpid() % 100000}-probe"
    probe = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return "" if probe.returncode == 0 else f"network namespaces are not available: {probe.stderr.strip()}"


class Network:
    """`cut`: pairs of nodes that cannot reach each other."""

    def __init__(self, nodes: int = 3, ipv6: bool = False, cut: Iterable[tuple[int, int]] = ()) -> None:
        self.name = f"aml{os.getpid() % 100000}"
        self.nodes, self.ipv6, self.cut = nodes, ipv6, list(cut)
        self.middle = f"{self.name}-x"

    def space(self, node: int) -> str:
        return f"{self.name}-{node}"

    def address(self, node: int) -> str:
        return f"fd77::{node + 1}" if self.ipv6 else f"10.77.0.{node + 1}"

    def __enter__(self) -> Network:
        try:
            self.make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def make(self) -> None:
        for space in [self.middle, *map(self.space, range(self.nodes))]:
            ip("netns", "add", space)
        ip("-n", self.middle, "link", "add", "bridge", "type", "bridge")
        ip("-n", self.middle, "link", "set", "bridge", "up")
        for node in range(self.nodes):
            space = self.space(node)
            ip("-n", space, "link", "add", "eth0", "type", "veth", "peer", "name", f"port{node}", "netns", self.middle)
            ip("-n", self.middle, "link", "set", f"port{node}", "master", "bridge", "up")
            # Without the test for duplicates an IPv6 address can be used at once.
            one = ["addr", "add", f"{self.address(node)}/64", "dev", "eth0", "nodad"] if self.ipv6 else \
                ["addr", "add", f"{self.address(node)}/24", "dev", "eth0"]
            ip("-n", space, *one)
            ip("-n", space, "link", "set", "eth0", "up")
            ip("-n", space, "link", "set", "lo", "up")
        for one, other in self.cut:
            for here, there in ((one, other), (other, one)):
                length = 128 if self.ipv6 else 32
                ip("-n", self.space(here), "route", "add", "unreachable", f"{self.address(there)}/{length}")

    def __exit__(self, *_: object) -> None:
        for space in [self.middle, *map(self.space, range(self.nodes))]:
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)

    def on(self, node: int) -> list[str]:
        """Runs a command on a node."""
        return ["ip", "netns", "exec", self.space(node)]

    def in_the_middle(self) -> list[str]:
        """Runs a command where all packets pass."""
        return ["ip", "netns", "exec", self.middle]

    def command(self) -> list[str]:
        """Runs a rank of launch.Step on its node."""
        return ["sh", "-c", f'exec ip netns exec {self.name}-"${{AMLDIST_NODE_NAME#node}}" "$@"', "sh"]
