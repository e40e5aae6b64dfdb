"""Tables of the launchers' flags and of a job file's keys: as the real tools have them, as the commands say, and as the documents say."""

from __future__ import annotations

import json
import pathlib
import re

from conftest import ROOT, Command

FLAGS = pathlib.Path(__file__).parent / "flags"


def real_flags(name: str) -> list[tuple[int, list[str]]]:
    lines = [line.split() for line in (FLAGS / f"{name}.txt").read_text().splitlines() if not line.startswith("#")]
    return [(int(line[0]), line[1:]) for line in lines]


def table_of(tool: str) -> list[dict]:
    return json.loads(Command(f"aml-{tool}").good("--list-flags", "--json").out)


def documented(heading: str, page: str) -> dict[tuple[str, str], list[str]]:
    """Rows of a section: handling and what the names become, and these names."""
    sections = re.split(r"^## ", (ROOT / page).read_text(), flags=re.M)
    section = next(part for part in sections if part.startswith(heading))
    rows = re.findall(r"^\| (`[^|]*`) \| ([\w ]+) \| (.*) \|$", section, re.M)
    assert len({row[1:] for row in rows}) == len(rows), "two rows say the same"
    return {(handling, becomes): [name.strip("`") for name in names.split(", ")] for names, handling, becomes in rows}


def by_text(table: list[dict]) -> dict[tuple[str, str], list[str]]:
    grouped: dict[tuple[str, str], list[str]] = {}
    for row in table:
        grouped.setdefault((row["handling"], row["becomes"].replace("|", "\\|")), []).extend(row["names"])
    return grouped
