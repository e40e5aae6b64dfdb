"""Random command lines, our answer to one, and what a comparison says."""

from __future__ import annotations

import collections
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import random
import shlex
import subprocess
from collections.abc import Callable

ROOT = pathlib.Path(__file__).resolve().parents[3]
BIN = pathlib.Path(os.environ.get("AMLDIST_TOOL", ROOT / "build-development/bin/aml-dist")).parent

SAME, REFUSED, BY_NAME, PROGRAM_WORD, HERE_ONLY, MACHINE_REFUSES, DIFFERS = "same", "refused by both", "refused by name", "before 3.12", "here only", "machine", "differs"
UGLY = ["", "-1", "-.5", "-x", "a b", "-a b", "--x y", "=", "x=y", "-", "--nnodes", "-m", "0", " 2", "1_0", "+3", "1e3", "2.5", "ä", "$X"]


# Sentences by which a line is refused that a real tool takes: README.md says why.
REASONS = ("not supported here", "'0' is not a number of slots", "cannot be read: No such file", "name them for all, or for none",
           " can mean ", "aml-mpirun: invalid value", "use a whole number from",
           "the number of processes is missing", "each needs its number of processes")


class Refused(Exception):
    """The real tool does not take the line."""


@dataclasses.dataclass
class Ours:
    status: int
    said: str
    told: dict  # --json
    text: str = ""  # what it is, if no JSON

    @property
    def words(self) -> list[str]:
        return self.told.get("command", ["no line:", self.said])

    def option(self, name: str) -> str | None:
        """The value of an option of srun; "" for one without."""
        head = self.words[: self.words.index("--") if "--" in self.words else len(self.words)]
        for word in head:
            if word == f"--{name}":
                return ""
            if word.startswith(f"--{name}="):
                return word.split("=", 1)[1]
        return None

    @property
    def kind(self) -> str:
        return self.option("aml-dist") or ""

    @property
    def program(self) -> list[str]:
        """The words behind srun's options and behind `aml-dist exec --`."""
        at = next(i for i, word in enumerate(self.words) if word.startswith("--aml-dist=")) + 1
        words = self.words[at:]
        return words[3:] if len(words) > 3 and words[0].rpartition("/")[2] == "aml-dist" and words[1:3] == ["exec", "--"] else words


def ask(tool: str, words: list[str], **variables: str) -> Ours:
    env = {"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **variables}
    done = subprocess.run([BIN / f"aml-{tool}", "--dry-run", "--json", *words], capture_output=True, cwd="/tmp", env=env, timeout=120,
                          check=False)
    said = done.stderr.decode(errors="replace")
    told = json.loads(done.stdout) if done.returncode == 0 and done.stdout.startswith(b"{") else {}
    return Ours(done.returncode, said, told, done.stdout.decode(errors="replace")[:200])


@dataclasses.dataclass
class Flag:
    names: list[str]
    values: int
    good: list[str]  # values that fit


def random_words(generator: random.Random, flags: list[Flag], most: int, ugly: float, short: float) -> list[str]:
    """Flags with values: mostly such as fit, some that do not, some cut short, some joined with "="."""
    words = []
    for _ in range(generator.randrange(0, most + 1)):
        flag = generator.choice(flags)
        name = generator.choice(flag.names)
        if generator.random() < short and name.startswith("--"):
            name = name[: generator.randrange(min(4, len(name)), len(name) + 1)]
        value = generator.choice(UGLY) if generator.random() < ugly or not flag.good else generator.choice(flag.good)
        shape = generator.random()
        if shape < 0.03:
            words.append(name)  # without its value, or a flag that has none
        elif shape < 0.35 and (flag.values == 1 or shape < 0.05) and short:
            words.append(f"{name}={value}")
        else:
            words += [name, *[value] * flag.values]
    return words


@dataclasses.dataclass
class Table:
    """What came of the lines of one tool."""

    version: str
    counts: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    differences: list[str] = dataclasses.field(default_factory=list)

    def row(self) -> str:
        columns = (SAME, REFUSED, BY_NAME, PROGRAM_WORD, HERE_ONLY, MACHINE_REFUSES, DIFFERS)
        return f"| {self.version} | {sum(self.counts.values())} | " + " | ".join(str(self.counts[each]) for each in columns) + " |"


HEADER = ("| parser | lines | taken by both, with one meaning | refused by both | taken there, refused here by name "
          "| refused there for a word of the program | taken here only, as documented "
          "| not judged: this machine is too small | differ |\n|---|---|---|---|---|---|---|---|---|")


def compare(version: str, lines: list[list[str]], judge: Callable[[list[str]], tuple[str, str]], workers: int) -> Table:
    table = Table(version)
    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        for words, (outcome, why) in zip(lines, pool.map(judge, lines), strict=True):
            table.counts[outcome] += 1
            if outcome == DIFFERS:
                table.differences.append(f"{shlex.join(words)}\n    {why}")
    return table


def verdict(real: object, ours: Ours, why: str) -> tuple[str, str] | None:
    """The outcome where one of the two refuses; None: both take it. `real` is None if the real tool refuses."""
    if real is None:
        return (REFUSED, "") if ours.status != 0 else (DIFFERS, f"refused there ({why}), taken here: {shlex.join(ours.words)}")
    if ours.status == 0:
        return None
    by_name = any(each in ours.said for each in REASONS)
    return (BY_NAME, "") if by_name else (DIFFERS, f"taken there, refused here: {ours.said.strip()}")
