#!/usr/bin/python3
"""Runs many steps of every kind on one cluster and checks that they leave nothing behind.

  tests/cluster/soak.py --plugin build/lib/slurm/spank_aml_dist.so --steps 1000

Starts a cluster of two nodes and stops it at the end. Steps succeed, fail, are refused, and have parameter servers. Counts
before and after, on each node: processes, slurmd's descriptors, leases of ports, listening ports, shared memory.
Exit status: 0 nothing was left behind, 1 something was. Needs root.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import time

from cluster import READABLE, Cluster, readable_copy

COUNT = r"""
import glob, json, os, subprocess
inode = os.stat("/proc/self/ns/net").st_ino
slurmd = subprocess.run(["pgrep", "-x", "slurmd"], capture_output=True, text=True).stdout.split()
own = {str(os.getpid()), str(os.getppid())}
def name(pid):
    try: return open(f"/proc/{pid}/comm").read().strip()
    except OSError: return ""
def listening(file):
    return sum(line.split()[3] in ("0A", "07") for line in open(file).read().splitlines()[1:])
names = [name(pid) for pid in os.listdir("/proc") if pid.isdigit() and pid not in own]
print(json.dumps({
    "steps' processes": sum(each in ("slurmstepd", "aml-dist-mon", "aml-dist-stop", "sleep-task") for each in names),
    "slurmd's descriptors": len(os.listdir(f"/proc/{slurmd[0]}/fd")) if slurmd else -1,
    "leases": len(glob.glob(f"/run/aml-dist/ports/*.{inode}")),
    "ports": sum(listening(f"/proc/net/{kind}") for kind in ("tcp", "tcp6", "udp", "udp6")),
    "shared memory": len(os.listdir("/dev/shm")),
}))
"""

STEPS = (
    ("--aml-dist=pytorch true", True),
    ("--aml-dist=mpi,verbose true", True),
    ("-n2 --ntasks-per-node=1 --aml-dist=pytorch,launch=per-node true", True),
    ("--aml-dist=tensorflow,worker_count=2,parameter_server_count=2 bash -c "
     "'case $SLURM_PROCID in 0|1) true;; *) exec -a sleep-task sleep 60;; esac'", True),
    ("--aml-dist=pytorch -K bash -c '[ $RANK = 1 ] && exit 3; exec sleep 20'", False),
    ("--aml-dist=pytorch,process_count=3 true", False),
    ("--aml-dist=pytorch,master_port=6818 true", False),  # slurmd's own port
    ("--aml-dist=jax bash -c 'kill -9 $$'", False),
)


def count(cluster: Cluster) -> dict[str, dict[str, int]]:
    """Counts on each node, after its last step has gone."""
    counts = {}
    for number in range(1, cluster.nodes + 1):
        deadline = time.monotonic() + 20
        while True:
            done = ask_node(cluster, f"node{number}")
            if done["steps' processes"] == 0 or time.monotonic() > deadline:
                break
            time.sleep(0.3)
        counts[f"node{number}"] = done
    return counts


def ask_node(cluster: Cluster, node: str) -> dict[str, int]:
    done = cluster.run(f"/usr/bin/python3 - <<'END'\n{COUNT}\nEND", on=node)
    assert done.status == 0, str(done)
    return json.loads(done.out)


def run_steps(cluster: Cluster, steps: int, where: str = "") -> list[str]:
    """Runs `count` steps in one job; returns a line for each with an unexpected end."""
    commands = []
    for index in range(steps):
        arguments, succeeds = STEPS[index % len(STEPS)]
        wanted = "-eq" if succeeds else "-ne"
        commands.append(f"timeout 60 srun -N2 {arguments} </dev/null >/dev/null 2>&1; s=$?; "
                        f"[ $s {wanted} 0 ] || echo step {index}: status $s")
    script = READABLE / "steps"
    script.write_text("\n".join([*commands, "echo all"]))
    done = cluster.run(f"salloc --quiet {where} -N2 -n4 bash {script}", timeout=60 + 5 * steps)
    *odd, last = done.out.splitlines() or [""]
    assert last == "all", str(done)
    return odd


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plugin", required=True, type=pathlib.Path, metavar="FILE")
    parser.add_argument("--steps", type=int, default=1000, metavar="N", help="how many (1000)")
    parser.add_argument("--cluster", default="soak", metavar="NAME", help="name of the cluster to start (soak)")
    options = parser.parse_args()
    cluster = Cluster(options.cluster, 2)
    started = cluster.devcluster("start", "--nodes", "2", "--plugin", str(readable_copy(options.plugin)))
    if started.status != 0:
        sys.exit(str(started))
    try:
        run_steps(cluster, len(STEPS))  # creates what is created only once
        before = count(cluster)
        began = time.monotonic()
        odd = run_steps(cluster, options.steps)
        seconds = time.monotonic() - began
        after = count(cluster)
    finally:
        cluster.devcluster("stop")
    print(f"{options.steps} steps in {seconds:.0f} s, {len(odd)} with an unexpected end")
    for line in odd:
        print(" ", line)
    for node, counts in before.items():
        for what, number in counts.items():
            print(f"{node}: {what}: {number} before, {after[node][what]} after")
    return 0 if before == after and not odd else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (subprocess.SubprocessError, OSError) as problem:
        sys.exit(f"soak: {problem}")
