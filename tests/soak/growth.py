"""Starts worlds of many real processes on made-up nodes, and measures what they cost.

    growth.py --program PROGRAM [--sizes 64,256,1024] [--each 8] [--library NAME=FOLDER]... [--table FILE] [--plot FILE]

PROGRAM is tests/soak/world. Each library (a folder with libamldist.so.0; without one: that which PROGRAM was linked
with) gets its turn at every size. Printed for each: seconds until every rank is up (also counted from the start
of the last process), and to the end; descriptors, threads,
private memory and address space of rank 0, of a leader and of a rank that leads nobody. Exit status: 0 if all worlds
came together and ended well.
"""

from __future__ import annotations

import argparse
import csv
import os
import pathlib
import random
import resource
import socket
import subprocess
import sys
import time


def free_port() -> int:
    """Far from those that other tests of this machine get from the system: rank 0 may listen at one of the next eight."""
    while True:
        port = random.randrange(20000, 30000, 16)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
                return port
            except OSError:
                continue


def cost(pid: int) -> dict[str, float]:
    """What a process has now."""
    here = pathlib.Path(f"/proc/{pid}")
    status = dict(line.split(":", 1) for line in (here / "status").read_text().splitlines())
    private = sum(int(line.split()[1]) for line in (here / "smaps_rollup").read_text().splitlines()
                  if line.startswith(("Private_Clean", "Private_Dirty")))
    return {"descriptors": len(list((here / "fd").iterdir())), "threads": int(status["Threads"]),
            "private_mib": private / 1024, "address_gib": int(status["VmSize"].split()[0]) / 2**20}


def world(program: str, folder: str, size: int, each: int) -> dict[str, float]:
    """One world: its costs by name. Raises if it does not come together or end."""
    base = {name: value for name, value in os.environ.items()
            if not name.startswith(("SLURM_", "PMI", "OMPI_", "LOCAL_", "AMLDIST_"))}
    base |= {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
             "AMLDIST_TRACE_DIR": "off"}
    if folder:
        base["LD_LIBRARY_PATH"] = folder
    began = time.monotonic()
    ranks = []
    try:
        for rank in range(size):
            own = base | {"RANK": str(rank), "AMLDIST_NODE_NAME": f"node{rank // each}"}
            ranks.append(subprocess.Popen([program], env=own, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        times = [rank.stdout.readline().split() for rank in ranks]
        if any(line[:1] != ["up"] for line in times):
            raise RuntimeError(f"{sum(line[:1] != ['up'] for line in times)} of {size} ranks did not come up")
        row = {"started_s": max(float(line[1]) for line in times) - began,
               "up_s": max(float(line[2]) for line in times) - began}
        for name, rank in (("root", 0), ("leader", size // each // 2 * each), ("rank", size - 1)):
            row |= {f"{name}_{key}": value for key, value in cost(ranks[rank].pid).items()}
        row["after_start_s"] = row["up_s"] - row["started_s"]
        ending = time.monotonic()
        for rank in ranks:
            rank.stdin.close()
        if any(rank.wait(300) != 0 for rank in ranks):
            raise RuntimeError("a rank did not end well")
        return row | {"end_s": time.monotonic() - ending}
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
            rank.wait()


def draw(rows: list[dict], file: str) -> None:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench"))
    from benchlib import plot
    what = [("after_start_s", "From the last start until all are up", "seconds"),
            ("root_descriptors", "Descriptors of rank 0", ""), ("root_private_mib", "Private memory of rank 0", "MiB")]
    panels = []
    for key, title, unit in what:
        series = {name: [(row["ranks"], row[key]) for row in rows if row["library"] == name]
                  for name in dict.fromkeys(row["library"] for row in rows)}
        panels.append(plot.Panel(title, "ranks, 8 on a node", unit, series))
    pathlib.Path(file).write_text(plot.draw(panels), encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--program", required=True)
    parser.add_argument("--sizes", default="64,256,1024")
    parser.add_argument("--each", type=int, default=8, help="ranks on a node")
    parser.add_argument("--library", action="append", default=[])
    parser.add_argument("--table")
    parser.add_argument("--plot")
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))  # this process holds two pipes for each rank
    libraries = dict(each.split("=", 1) for each in options.library) or {"linked": ""}
    rows, failed = [], 0
    for size in map(int, options.sizes.split(",")):
        for name, folder in libraries.items():
            row = {"library": name, "ranks": size, "nodes": size // options.each}
            try:
                row |= world(options.program, folder, size, options.each)
            except Exception as problem:  # noqa: BLE001  counted, and the others go on
                failed += 1
                print(f"{name}, {size} ranks: {problem}")
                continue
            rows.append(row)
            print("  ".join(f"{key}={value:.2f}" if isinstance(value, float) else f"{key}={value}"
                            for key, value in row.items()), flush=True)
    if options.table and rows:
        with open(options.table, "w", newline="", encoding="utf-8") as out:
            writer = csv.DictWriter(out, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    if options.plot and rows:
        draw(rows, options.plot)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
