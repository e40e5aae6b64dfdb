"""Command lines of public documents and bug reports, copied in meaning, with what aml-dist makes of each: documents/lines.txt. A person has
read each answer against the document. To change one on purpose: `test_documents.py --write`, and read the difference.

    # SOURCE
    $ the line
    srun ...            what it becomes; or
    refused: ...        the sentence
    ignored: ...        a sentence beside the srun line
"""

from __future__ import annotations

import pathlib
import re
import shlex
import sys

import pytest
from conftest import USAGE, Command

DOCUMENTS = pathlib.Path(__file__).parent / "documents"
LINES = DOCUMENTS / "lines.txt"
TOOLS = {"mpirun": "mpirun", "mpiexec": "mpirun", "mpiexec.hydra": "mpirun", "torchrun": "torchrun", "deepspeed": "deepspeed", "horovodrun": "horovodrun"}
OLD_TORCHRUN = re.compile(r"python -m torch\.distributed\.(run|launch) ")


def entries() -> list[tuple[str, str, str]]:
    """Source, line, answer."""
    found, source = [], ""
    for block in re.split(r"^(?=[#$] )", LINES.read_text(), flags=re.MULTILINE)[1:]:
        head, _, answer = block.partition("\n")
        if head.startswith("# "):
            source = head[2:]
        else:
            found.append((source, head[2:], answer.strip()))
    return found


def answer(line: str) -> str:
    words = shlex.split(OLD_TORCHRUN.sub("torchrun ", line))
    done = Command(f"aml-{TOOLS[words[0]]}").run("--dry-run", *words[1:], cwd=DOCUMENTS / "hosts")
    said = [each.removeprefix("aml-dist: ") for each in done.said.splitlines()]
    if done.status != 0:
        return "\n".join(f"refused: {each}" for each in said)
    line = re.sub(r"(?<=[ '])/\S*/aml-dist\b", "aml-dist", done.text.strip())
    return "\n".join([line, *(f"ignored: {each}" for each in said)])


@pytest.mark.parametrize("source, line, expected", entries(), ids=[line for _, line, _ in entries()])
def test_a_line_of_a_document(source, line, expected):
    assert answer(line) == expected, source


def test_there_are_enough_and_each_has_a_source():
    assert len(entries()) >= 200 and all(source and expected for source, _, expected in entries())
    assert len({line for _, line, _ in entries()}) == len(entries())


def write() -> None:
    source, out = "", []
    for each_source, line, _ in entries():
        if each_source != source:
            out.append(f"# {each_source}\n")
        source = each_source
        out.append(f"$ {line}\n{answer(line)}\n")
    LINES.write_text("".join(out))


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    write()
