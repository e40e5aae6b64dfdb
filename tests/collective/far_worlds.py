"""Worlds of nodes that reach each other by IPv6 only: they come together, compute right and end.

    far_worlds.py --program PROGRAM

The nodes are network name spaces. Exit status: 0 all right, else 1; 77 where there can be no name spaces.
"""

import argparse
import sys

import launch
import network

RANKS, NODES = 5, 3


def world(program: str, nodes: network.Network, **environment: str) -> str | None:
    step = launch.Step([*nodes.command(), program, "operations", "messages"], RANKS, NODES,
                       {"MASTER_ADDR": nodes.address(0)} | environment)
    statuses = step.wait(120)
    return None if statuses == [0] * RANKS else f"{environment}: {statuses} {step.lines}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    program = parser.parse_args().program
    why = network.reason_to_skip() or ("" if launch.has_ipv6() else "this machine has no IPv6")
    if why:
        print(f"skipped: {why}")
        return 77
    first = launch.free_port()
    ports = {"AMLDIST_PORT_RANGE": f"{first}-{first + 15}"}
    with network.Network(NODES, ipv6=True) as nodes:
        results = [world(program, nodes), world(program, nodes, AMLDIST_STEP_SECRET="5e" * 32, **ports)]
    wrong = [each for each in results if each]
    print("\n".join([*wrong, f"{len(results)} worlds over IPv6, {len(wrong)} wrong"]))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
