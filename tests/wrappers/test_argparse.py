"""torchrun, deepspeed and horovodrun read their lines with Python's argparse. So a line that argparse refuses, with the real
tools' own flags, is refused here; what it takes is taken, with the same words for the program. Beyond a seeded sample:
AMLDIST_SOAK_LINES=2000."""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import random
import re
import shlex

import pytest
from conftest import Command
from test_launchers import real_flags, table_of

LINES = int(os.environ.get("AMLDIST_SOAK_LINES", "150"))
SYNTAX = ("needs a value", "has no flag", "takes no value", "can mean")
SMALLEST = {"torchrun": [], "deepspeed": ["--num_gpus=2"], "horovodrun": ["-np", "2"]}
VALUES = ["2", "2", "2", "", "-1", "-.5", "-x", "--", "a b", "-a b", "--x y", "=", "x=y", "-", "--nnodes", "-m"]


class Refused(Exception):
    pass


class Parser(argparse.ArgumentParser):
    def error(self, message):
        raise Refused(message)


def parser_of(name: str, tool: str) -> tuple[Parser, list[tuple[int, list[str]]]]:
    """argparse with the flags of the real tool, less those that end it or that aml-dist refuses by name."""
    table = {spelling: row for row in table_of(tool) for spelling in row["names"]}
    parser, flags = Parser(add_help=False), []
    for values, spellings in real_flags(name):
        parser.add_argument(*spellings, dest=spellings[0] + "_", **({"action": "store_true"} if values == 0 else {}))
        ends = any(spelling in ("-h", "--help", "-v", "--version", "--check-build", "-cb") for spelling in spellings)
        if not ends and table[spellings[0]]["handling"] != "refused":
            flags.append((values, spellings))
    parser.add_argument("program_")
    parser.add_argument("arguments_", nargs=argparse.REMAINDER)
    return parser, flags


def random_line(generator: random.Random, flags: list[tuple[int, list[str]]]) -> list[str]:
    words = []
    for _ in range(generator.randrange(0, 4)):
        values, spellings = generator.choice(flags)
        name = generator.choice(spellings)
        if generator.random() < 0.4 and name.startswith("--"):
            name = name[:generator.randrange(3, len(name) + 1)]
        value = generator.choice(VALUES) if generator.random() < 0.5 else "2"
        shape = generator.random()
        if shape < 0.15:
            words.append(name)  # without its value, or a flag that has none
        elif shape < 0.5:
            words.append(f"{name}={value}")
        else:
            words += [name, value] if values or shape < 0.6 else [name]
    return words


@pytest.mark.parametrize("tool, name", [("torchrun", "torchrun-2.15"), ("deepspeed", "deepspeed-0.19"), ("horovodrun", "horovodrun-0.28")])
def test_what_argparse_refuses_is_refused_and_what_it_takes_is_taken(tool, name):
    parser, flags = parser_of(name, tool)
    generator = random.Random(19)
    command = Command(f"aml-{tool}")
    known = {spelling for _, spellings in real_flags(name) for spelling in spellings}
    lines = []
    while len(lines) < LINES:
        words = random_line(generator, flags)
        # "--" moved between releases of argparse; -v and -h end the tools.
        if "--" not in words:
            lines.append([*SMALLEST[tool], *words, "prog", "--x", "y z", "-1"])

    def differs(words: list[str]) -> str:
        try:
            real = parser.parse_args(words)
        except Refused as refusal:
            real = None
            why = str(refusal)
        ours = command.run("--dry-run", *words, cwd="/tmp")
        if real is None and (word := re.match("ambiguous option: (.*) could match", why)) and word.group(1) in shlex.split(ours.text):
            return ""  # a word of the program, which releases of argparse before 3.12 look at too
        if real is None:
            return "" if ours.status != 0 else f"{shlex.join(words)}: argparse refuses it ({why}), we take it: {ours.text}"
        if "can mean" in ours.said and not all(each in known for each in re.search("can mean (\\S+) or (\\S+):", ours.said).groups()):
            return ""  # a flag of another release
        if "mpirun has no flag" in ours.said:
            return ""  # what --mpi-args and --binding-args hold is mpirun's
        if ours.status != 0:
            return f"{shlex.join(words)}: argparse takes it, we do not: {ours.said}" if any(each in ours.said for each in SYNTAX) else ""
        program = [real.program_, *real.arguments_]
        got = shlex.split(ours.text)
        tail = got[-len(program):]
        local_rank = [word for word in got if not word.startswith("--local_rank=")]  # deepspeed adds one
        return "" if tail == program or local_rank[-len(program):] == program else f"{shlex.join(words)}: {program} became {got}"

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        differences = [each for each in pool.map(differs, lines) if each]
    assert not differences, f"{len(differences)} of {len(lines)} differ:\n" + "\n".join(differences[:10])
