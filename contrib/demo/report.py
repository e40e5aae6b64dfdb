#!/usr/bin/env python3
"""Checks the report of a training run (examples/pytorch/train_ddp.py --report), and shows it: who was which rank, and
how the loss fell. Exit status 1, with one line for each failed check.
Standard library only.
"""
from __future__ import annotations

import argparse
import json
import math
import shutil
import sys
from pathlib import Path

import curve

MEAN_COLOUR = "#1f2933"
NODE_COLOURS = ("#2186eb", "#f0803c", "#18a979", "#c3337f", "#7b5bd6", "#b5890a", "#0ba5bd", "#d64545")
LEGEND_ROOM = 13  # nodes that fit beside the picture


def problems(report: dict, nodes: int, tasks_per_node: int, one_host: bool) -> list[str]:
    """What is wrong, as sentences, after `nodes` x `tasks_per_node` processes trained together.

    one_host: the nodes are simulated on one machine and all have its name.
    """
    found = []
    wanted = nodes * tasks_per_node
    processes = report["processes"]

    def expect(what: str, is_: object, should: object) -> None:
        if is_ != should:
            found.append(f"{what}: {is_} instead of {should}")

    def each(name: str) -> list:
        return sorted({process[name] for process in processes}, key=str)

    expect("number of processes", len(processes), wanted)
    expect("WORLD_SIZE", each("world_size"), [wanted])
    expect("ranks", sorted(process["rank"] for process in processes), list(range(wanted)))
    expect("LOCAL_WORLD_SIZE", each("local_world_size"), [tasks_per_node])
    expect("number of hosts", len(each("host")), 1 if one_host else nodes)

    for node_rank in range(nodes):
        here = [process for process in processes if process["node_rank"] == node_rank]
        expect(f"local ranks on node {node_rank}", sorted(process["local_rank"] for process in here),
               list(range(tasks_per_node)))
        expect(f"hosts that are node {node_rank}", len({process["host"] for process in here}), 1)
    expect("node rank of rank 0", next((p["node_rank"] for p in processes if p["rank"] == 0), None), 0)

    masters = {f"{process['master_addr']}:{process['master_port']}" for process in processes}
    if len(masters) != 1:
        found.append(f"the processes have different masters: {', '.join(sorted(masters))}")
    if nodes > 1 and not one_host and any(str(process["master_addr"]).startswith(("127.", "localhost")) for process in processes):
        found.append("the master's address is loopback, which other nodes cannot reach")

    if not report["parameters_equal"]:
        found.append(f"the processes ended with different parameters (by up to {report['largest_parameter_difference']:g})")
    losses = [epoch["loss"] for epoch in report["epochs"]]
    if not losses or not all(math.isfinite(loss) for loss in losses):
        found.append("the loss is not a number in every epoch")
    elif losses[0] < report["wanted_loss_fall"] * losses[-1]:
        found.append(f"the loss fell from {losses[0]:.4f} to {losses[-1]:.4f} only")
    return found


def table(processes: list[dict]) -> list[str]:
    heads = {"rank": "RANK", "host": "host", "local_rank": "LOCAL_RANK", "node_rank": "NODE_RANK", "master": "MASTER_ADDR:MASTER_PORT"}
    rows = [{**process, "master": f"{process['master_addr']}:{process['master_port']}"} for process in processes]
    width = {key: max(len(head), *(len(str(row[key])) for row in rows)) for key, head in heads.items()}

    def line(cells: dict) -> str:
        return "  ".join(str(cells[key]).ljust(width[key]) if isinstance(cells[key], str) else str(cells[key]).rjust(width[key])
                         for key in heads).rstrip()

    return [line(heads), "  ".join("-" * width[key] for key in heads), *map(line, rows)]


def picture(report: dict) -> str:
    processes = sorted(report["processes"], key=lambda process: process["rank"])
    epochs = report["epochs"]
    mean = curve.Line("mean", [epoch["loss"] for epoch in epochs], MEAN_COLOUR)
    colour = [NODE_COLOURS[process["node_rank"] % len(NODE_COLOURS)] for process in processes]
    by_rank = [curve.Line(f"rank {rank}", [epoch["loss_by_rank"][rank] for epoch in epochs], colour[rank])
               for rank in range(len(processes))]

    legend = [("mean of all ranks", MEAN_COLOUR)]
    nodes = sorted({process["node_rank"] for process in processes})
    for node in nodes[:LEGEND_ROOM]:
        here = [process for process in processes if process["node_rank"] == node]
        ranks = [process["rank"] for process in here]
        legend.append((f"{here[0]['host']}: rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}",
                       NODE_COLOURS[node % len(NODE_COLOURS)]))
    if len(nodes) > LEGEND_ROOM:
        legend.append((f"and {len(nodes) - LEGEND_ROOM} more nodes", "none"))

    first = processes[0]
    return curve.as_svg(
        f"Training on {len(processes)} ranks, {len(nodes)} nodes: srun --aml-dist=pytorch",
        f"PyTorch {report['torch']}, DistributedDataParallel over {report['backend']}, master {first['master_addr']}:{first['master_port']}; "
        "parameters equal on all ranks",
        mean, by_rank, legend)


def show(report: dict) -> None:
    unicode = (sys.stdout.encoding or "").lower().replace("-", "") == "utf8"
    losses = [epoch["loss"] for epoch in report["epochs"]]
    width = max(20, min(60, shutil.get_terminal_size((80, 24)).columns - 20))
    print(*table(sorted(report["processes"], key=lambda process: process["rank"])), sep="\n")
    print(f"\nloss, mean of all ranks: {losses[0]:.4f} in the first epoch, {losses[-1]:.4f} in the last")
    print(*curve.as_text(losses, width=width, unicode=unicode), sep="\n")


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks and shows the report of a training run")
    parser.add_argument("report", type=Path)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--tasks-per-node", type=int, required=True)
    parser.add_argument("--one-host", action="store_true", help="the nodes are all this one host")
    parser.add_argument("--svg", type=Path, help="where to write the loss curve as a picture")
    arguments = parser.parse_args()

    try:
        report = json.loads(arguments.report.read_text(encoding="utf-8"))
        found = problems(report, arguments.nodes, arguments.tasks_per_node, arguments.one_host)
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"the report {arguments.report} is missing or incomplete: {error!r}", file=sys.stderr)
        return 1
    for problem in found:
        print(problem, file=sys.stderr)
    if found:
        return 1
    show(report)
    if arguments.svg:
        arguments.svg.write_text(picture(report), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
