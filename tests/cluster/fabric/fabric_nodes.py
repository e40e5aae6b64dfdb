"""Fabricated InfiniBand on the nodes of the live cluster: trees laid over /sys/class, device nodes in /dev/infiniband.

Each node has its own mounts, so each can have its own faults. The verbs, which the kernel cannot provide without devices,
come from the libibverbs in memory (tests/fabric/fake_verbs.c), which the user's environment names.
"""

from __future__ import annotations

import pathlib
import shutil
import sys
import tempfile

from cluster import Cluster, readable_copy

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "fabric"))
import trees  # noqa: E402

DEV = trees.DevicePlace.PATH


class FabricatedNodes:
    """Trees on some nodes of a cluster, until close()."""

    def __init__(self, cluster: Cluster, library: pathlib.Path) -> None:
        self.cluster = cluster
        self.verbs = readable_copy(library)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="aml-dist-trees-", dir="/var/tmp"))
        self.folder.chmod(0o755)
        self.memory = self.folder / "memory"  # what is registered lies in files there, so that nodes reach each other's
        self.memory.mkdir()
        self.memory.chmod(0o1777)
        self.place = trees.DevicePlace()
        self.nodes: dict[str, trees.Node] = {}

    def lay(self, node: str, tree: trees.Node, devices: bool = True) -> None:
        """Gives the node this tree, and a device node for each device (the kernel's null device under another name)."""
        own = self.folder / node
        sys_folder, _ = tree.build(own)
        names = [device.uverbs or f"uverbs{index}" for index, device in enumerate(tree.devices)] if devices else []
        made = " && ".join([f"mknod -m 666 {DEV}/{name} c 1 3" for name in names] or ["true"])
        done = self.cluster.run(
            f"mount -t overlay -o lowerdir={sys_folder}/class:/sys/class overlay /sys/class && "
            f"mount -t tmpfs -o mode=755,dev tmpfs {DEV} && {made}", on=node)
        assert done.status == 0, str(done)
        if tree.modules:
            done = self.cluster.run(f"mount -t overlay -o lowerdir={sys_folder}/module:/sys/module overlay /sys/module", on=node)
            assert done.status == 0, str(done)
        self.nodes[node] = tree

    def environment(self, **more: str) -> dict[str, str]:
        names = {device.name for tree in self.nodes.values() for device in tree.devices}
        return {"AMLDIST_LIBIBVERBS": str(self.verbs), "FAKE_VERBS_DEVICES": ",".join(sorted(names)),
                "FAKE_VERBS_SHARED": str(self.memory), **more}

    def close(self) -> None:
        for node in self.nodes:
            modules = "umount /sys/module && " if self.nodes[node].modules else ""
            done = self.cluster.run(f"{modules}umount {DEV} && umount /sys/class", on=node)
            assert done.status == 0, str(done)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.place.close()
