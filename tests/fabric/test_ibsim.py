"""States, LIDs and partitions as a real subnet manager makes them: opensm on the simulated fabric of ibsim.

ibsim's stand-in for libibumad writes, for each process that it is loaded into, the sysfs tree of the node that the process
plays, as its subnet manager has left it. A copy of that tree goes to aml-dist check; ibstat, over the same simulator,
says what a port is. Two things the simulator's tree lacks are added: the link layer, and GIDs (it has none of either).
"""

from __future__ import annotations

import os
import pathlib
import shutil
import subprocess
import sys
import time

import conftest
import pytest
import trees

STAND_IN = next(iter(pathlib.Path("/usr/lib").glob("*/umad2sim/libumad2sim.so")), None)
PROGRAMS = {name: shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")
            for name in ("ibsim", "opensm", "ibstat")}
pytestmark = pytest.mark.skipif(STAND_IN is None or None in PROGRAMS.values(),
                                reason="ibsim-utils, libumad2sim0, opensm and infiniband-diags are not installed")

FABRIC = """\
Switch 8 "S-one"
[1] "H-one"[1]
[2] "H-two"[1]

Hca 1 "H-one"
[1] "S-one"[1]

Hca 1 "H-two"
[1] "S-one"[2]
"""
COPY = "import os, subprocess, sys; os.listdir('/sys/class/infiniband'); " \
       "subprocess.run(['cp', '-r', f'sys-{os.getpid()}/sys', sys.argv[1]], check=True, env={'PATH': os.environ['PATH']})"


class Simulator:
    """Two nodes at a switch."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.count = 0
        (folder / "net").write_text(FABRIC)
        self.log = open(folder / "ibsim.log", "w+")
        self.socket = f"aml-dist-{os.getpid()}-{folder.name}"[-60:]
        self.process = subprocess.Popen([PROGRAMS["ibsim"], "-s", "net"], cwd=folder, stdin=subprocess.PIPE, text=True,
                                        stdout=self.log, stderr=subprocess.STDOUT,
                                        env={"PATH": os.environ["PATH"], "IBSIM_SOCKNAME": self.socket})
        self.wait_until(lambda: self.run("H-one", PROGRAMS["ibstat"]).returncode == 0)

    def wait_until(self, happened) -> None:
        for _ in range(100):
            if happened():
                return
            time.sleep(0.1)
        pytest.fail(f"ibsim does not get there: {(self.folder / 'ibsim.log').read_text()[-2000:]}")

    def run(self, host: str, *command: str) -> subprocess.CompletedProcess:
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=30, check=False,
                              env={"PATH": os.environ["PATH"], "LD_PRELOAD": str(STAND_IN), "SIM_HOST": host,
                                   "IBSIM_SOCKNAME": self.socket})

    def tell(self, line: str) -> None:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def manage(self, *arguments: str) -> None:
        """One sweep of the subnet manager, from the first node."""
        log = self.folder / "opensm.log"
        done = self.run("H-one", PROGRAMS["opensm"], "-o", "-f", str(log), *arguments)
        assert done.returncode == 0, done.stdout + done.stderr + log.read_text()[-2000:]

    def tree(self, host: str) -> pathlib.Path:
        self.count += 1
        copy = self.folder / f"tree{self.count}"
        done = self.run(host, sys.executable, "-c", COPY, str(copy))
        assert done.returncode == 0, done.stderr
        port = copy / "class/infiniband/ibsim0/ports/1"
        trees.write(port / "link_layer", trees.Port().link_layer)
        trees.write(port / "gids/0", trees.ib_gids(1)[0][0])
        return copy

    def ibstat(self, host: str) -> dict[str, str]:
        return dict(line.strip().split(": ", 1) for line in self.run(host, PROGRAMS["ibstat"]).stdout.splitlines()
                    if ": " in line)

    def close(self) -> None:
        self.process.kill()
        self.process.wait(10)
        self.log.close()


@pytest.fixture
def fabric(tmp_path):
    simulator = Simulator(tmp_path)
    yield simulator
    simulator.close()


def verdicts(fabric: Simulator, host: str) -> tuple[dict[str, str], dict[str, dict]]:
    """Ours about a node; where ibstat can tell, it must agree."""
    outcome = conftest.Checker(fabric.folder).run("--sysfs-root", fabric.tree(host), "--json", "--policy", "require")
    seen, ours = fabric.ibstat(host), outcome.verdicts
    assert (ours["ib.state"] == "pass") == (seen["State"] == "Active" and seen["Physical state"] == "LinkUp"), seen
    assert (ours["ib.lid"] == "pass") == (seen["Base lid"] not in ("0", "65535") and seen["SM lid"] != "0"), seen
    return ours, outcome.checks


def test_without_a_subnet_manager_ports_stay_in_init(fabric):
    ours, checks = verdicts(fabric, "H-two")
    assert ours["ib.state"] == "fail" and ours["ib.lid"] == "fail"
    assert "2: INIT" in checks["ib.state"]["evidence"] and "subnet manager" in checks["ib.state"]["remedy"], checks


def test_the_subnet_manager_brings_them_up(fabric):
    fabric.manage()
    for host in ("H-one", "H-two"):
        ours, checks = verdicts(fabric, host)
        assert [ours[check] for check in ("ib.state", "ib.lid", "ib.pkey")] == ["pass"] * 3, checks


def test_a_cable_pulled_afterwards_is_seen_although_the_lid_stays(fabric):
    fabric.manage()
    fabric.tell('unlink "H-two"[1]')
    fabric.wait_until(lambda: fabric.ibstat("H-two")["State"] == "Down")
    ours, checks = verdicts(fabric, "H-two")
    assert ours["ib.state"] == "fail" and ours["ib.lid"] == "pass", checks
    assert "1: DOWN" in checks["ib.state"]["evidence"] and "cable" in checks["ib.state"]["remedy"], checks
    fabric.manage()
    assert verdicts(fabric, "H-one")[0]["ib.state"] == "pass", "its neighbour is well"


def test_a_cable_put_back_waits_for_the_next_sweep(fabric):
    fabric.manage()
    fabric.tell('unlink "H-two"[1]')
    fabric.wait_until(lambda: fabric.ibstat("H-two")["State"] == "Down")
    fabric.tell('relink "H-two"[1]')
    fabric.wait_until(lambda: fabric.ibstat("H-two")["State"] == "Initializing")
    ours, checks = verdicts(fabric, "H-two")
    assert ours["ib.state"] == "fail" and "2: INIT" in checks["ib.state"]["evidence"], checks
    fabric.manage()
    assert verdicts(fabric, "H-two")[0]["ib.state"] == "pass"


@pytest.mark.parametrize("membership, verdict", [("full", "pass"), ("limited", "fail")])
def test_membership_of_a_partition_is_the_subnet_managers(fabric, membership, verdict):
    guid = fabric.ibstat("H-two")["Port GUID"]
    partitions = fabric.folder / "partitions.conf"
    partitions.write_text("Default=0x7fff, ipoib: ALL=limited, SELF=full;\n"
                          f"Mine=0x18: SELF=full, {guid}={membership};\n")
    fabric.manage("-P", str(partitions))
    ours, checks = verdicts(fabric, "H-two")
    # Where the chosen index 0 is a limited member of the default partition, a full key behind it is a warning.
    assert ours["ib.pkey"] == {"pass": "warn", "fail": "fail"}[verdict], checks
