#!/usr/bin/env python3
"""tests/style/root_page.py [--write]: makes docs/root.md from tests/cluster/hostile/root_touches.txt, or says whether it is that."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIST = ROOT / "tests/cluster/hostile/root_touches.txt"
PAGE = ROOT / "docs/root.md"
HEAD = """# What the plugin touches as root

For an auditor: every file, socket, process, signal and variable that the plugin touches with root's rights in slurmstepd. In slurmd it
reads its arguments and the file of `config=`, and nothing else. What is not listed here it does with the user's rights, or not at all
([threat model](threat-model.md)). Made from [a list](../tests/cluster/hostile/root_touches.txt) by `tests/style/root_page.py --write`.

The list is compared with what happens. `tests/cluster/hostile/test_root.py` records the kernel's calls of live steps of each kind with
their stacks (`strace -k`), and takes those that have the plugin on the stack and root's rights. `abi.variables_of_root` records the
variables. A call without a line fails the test, so that a new one is seen in review. The first column is the test's regular
expression: N is a number, `\\p` separates alternatives, `PLUGIN-FOLDER` where the plugin is installed, `SITE-FILE` the file of `config=`.
"""


def page_of(text: str) -> str:
    rows = [[field.strip() for field in line.split("|")] for line in text.splitlines() if line and not line.startswith("#")]
    table = {title: [row for row in rows if (" variable " in row[0]) == is_variable]
             for title, is_variable in (("Files, sockets, processes, signals", False), ("Variables of the job", True))}
    return HEAD + "".join(f"\n## {title}\n\n| touched | when | what for |\n|---|---|---|\n"
                          + "".join(f"| `{row[0]}` | {row[1]} | {row[2]} |\n" for row in found) for title, found in table.items())


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        PAGE.write_text(page_of(LIST.read_text()))
    elif not PAGE.exists() or PAGE.read_text() != page_of(LIST.read_text()):
        sys.exit("docs/root.md is not made from its list: tests/style/root_page.py --write")
