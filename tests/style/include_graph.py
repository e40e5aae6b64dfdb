#!/usr/bin/env python3
"""tests/style/include_graph.py [--write]: which folder of the product includes which, and whether docs/architecture.md says so.

A folder is where a file lies. The table stands between two comments in docs/architecture.md, one line for each folder with the
folders that it includes. Without an argument it prints what differs and what is circular, and exits with 1 if anything is;
--write makes the table anew, which is reviewed like any other change.
"""

import argparse
import collections
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PARTS = ("libdist", "spank", "srun-wrappers")
SEARCHED = ("libdist", "libdist/api/include", "srun-wrappers", "")  # the build's -I, in any order: no name is in two of them
TESTS = "test"  # the name of the folders beside the wings that hold their unit tests
SUFFIXES = {".cpp", ".hpp", ".h", ".c", ".cu", ".in"}
BEGIN, END = "<!-- include table -->", "<!-- end -->"

Graph = dict[str, dict[str, str]]  # folder -> folder that it includes -> one include, as "FILE:LINE"


def target_of(name: str, including: pathlib.Path, root: pathlib.Path) -> pathlib.Path | None:
    """The file that an include names, as the compiler finds it; None for one that is not of this tree."""
    for base in (including.parent, *(root / folder for folder in SEARCHED)):
        if (base / name).is_file():
            return (base / name).resolve().relative_to(root)
    return None


def graph_of(root: pathlib.Path) -> Graph:
    graph: Graph = {}
    for part in PARTS:
        for file in sorted((root / part).rglob("*")):
            folder = file.parent.relative_to(root).as_posix()
            if file.suffix not in SUFFIXES or not file.is_file() or TESTS in folder.split("/"):
                continue
            own = graph.setdefault(folder, {})
            for number, line in enumerate(file.read_text().splitlines(), 1):
                if not (found := re.match(r'\s*#\s*include\s+["<]([^">]+)[">]', line)):
                    continue
                target = target_of(found[1], file, root)
                if target is None or (included := target.parent.as_posix()) == folder:
                    continue
                own.setdefault(included, f"{file.relative_to(root)}:{number} includes {found[1]}")
    return graph


def cycles(graph: Graph) -> list[list[str]]:
    """Each set of folders that reach one another, once, as a path that ends where it began."""
    found: list[list[str]] = []
    done: set[str] = set()

    def visit(folder: str, path: list[str]) -> None:
        if folder in path:
            circle = [*path[path.index(folder):], folder]
            if not any(set(circle) == set(other) for other in found):
                found.append(circle)
            return
        if folder in done:
            return
        for included in sorted(graph.get(folder, ())):
            visit(included, [*path, folder])
        done.add(folder)

    for folder in sorted(graph):
        visit(folder, [])
    return found


def table_of(graph: Graph) -> str:
    """A folder comes after the folders that it includes, as far as that is possible, and by name among equals."""
    depths: dict[str, int] = {}

    def depth(folder: str, above: tuple[str, ...] = ()) -> int:
        if folder in above:
            return 0
        if folder not in depths:
            depths[folder] = 1 + max((depth(each, (*above, folder)) for each in graph.get(folder, ())), default=0)
        return depths[folder]

    order = sorted(graph, key=lambda folder: (PARTS.index(folder.split("/")[0]), depth(folder), folder))
    lines = ["| folder | includes |", "|---|---|"]
    lines += [f"| `{folder}` | {', '.join(f'`{each}`' for each in sorted(graph[folder])) or '-'} |" for folder in order]
    return "\n".join(lines)


def parts_of(document: str) -> tuple[str, str, str]:
    """What is before the table, the table, and what is after it."""
    before, begin, rest = document.partition(BEGIN)
    table, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"no table: it stands between the lines '{BEGIN}' and '{END}'")
    return before + begin, table, end + after


def documented(table: str) -> dict[str, set[str]]:
    rows = re.findall(r"^\| `([^`]+)` \| (.*) \|$", table, re.MULTILINE)
    repeated = [folder for folder, count in collections.Counter(folder for folder, _ in rows).items() if count > 1]
    if repeated:
        raise ValueError(f"{repeated[0]} stands in the table twice")
    return {folder: set(re.findall(r"`([^`]+)`", cell)) for folder, cell in rows}


def differences(graph: Graph, rows: dict[str, set[str]]) -> list[str]:
    found = [f"{folder} is not in the table" for folder in sorted(graph.keys() - rows.keys())]
    found += [f"{folder} is in the table and holds no source" for folder in sorted(rows.keys() - graph.keys())]
    for folder in sorted(graph.keys() & rows.keys()):
        found += [f"{graph[folder][each]}: the table has no {each} beside {folder}"
                  for each in sorted(graph[folder].keys() - rows[folder])]
        found += [f"the table has {each} beside {folder}, but nothing there includes it"
                  for each in sorted(rows[folder] - graph[folder].keys())]
    return found


def circles(graph: Graph) -> list[str]:
    """Each cycle with an include for every step of it."""
    found = []
    for circle in cycles(graph):
        steps = [graph[a][b] for a, b in zip(circle, circle[1:])]
        found.append("\n  ".join(["these folders include one another: " + " -> ".join(circle), *steps]))
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the table into docs/architecture.md")
    document = ROOT / "docs/architecture.md"
    graph = graph_of(ROOT)
    before, table, after = parts_of(document.read_text())
    if parser.parse_args().write:
        document.write_text(f"{before}\n{table_of(graph)}\n{after}")
        table = table_of(graph)
    problems = differences(graph, documented(table)) + circles(graph)
    print("\n".join(problems) if problems else "the table and the includes agree, and none is circular")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
