"""Command lines and job files of public documents and bug reports, copied in meaning, with what aml-dist makes of each. The
answers are aml-dist's own, so that a change of any is seen in review. To change one on purpose: `test_documents.py --write`, and read the
difference against the document.

documents/jobs.yml has job files of Azure/azureml-examples, reduced to their keys; documents/lines.txt has command lines of documents, and
lines_of_scripts.txt of public batch scripts:

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
import subprocess
import sys
import tempfile

import pytest
import yaml
from conftest import USAGE, Command

DOCUMENTS = pathlib.Path(__file__).parent / "documents"
LINES = [DOCUMENTS / "lines.txt", DOCUMENTS / "lines_of_scripts.txt"]
TOOLS = {"mpirun": "mpirun", "mpiexec": "mpirun", "mpiexec.hydra": "mpirun", "mpirun_rsh": "mpirun", "torchrun": "torchrun", "deepspeed": "deepspeed", "horovodrun": "horovodrun"}
OLD_TORCHRUN = re.compile(r"python -m torch\.distributed\.(run|launch) ")


def entries(files: list[pathlib.Path] = LINES) -> list[tuple[str, str, str]]:
    """Source, line, answer."""
    found, source = [], ""
    for block in re.split(r"^(?=[#$] )", "".join(file.read_text() for file in files), flags=re.MULTILINE)[1:]:
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


# ------------------------------------------------------------------------------------------------------------------- job files

JOBS = DOCUMENTS / "jobs.yml"
PLAIN = ("", "string", "number", "integer", "boolean")
SCHEMA = "https://azuremlschemas.azureedge.net/latest/{}.schema.json"


def jobs() -> list[dict]:
    return yaml.safe_load(JOBS.read_text())


def answer_to_job(entry: dict) -> str:
    """Shape and srun line of each script; or the sentence. Values that a message asks for are given, as a user would."""
    with tempfile.TemporaryDirectory(prefix="aml-dist-documents-") as name:
        folder = pathlib.Path(name)
        for each in ("src", "data"):
            (folder / each).mkdir()
        (folder / "conda.yml").write_text("dependencies: [python=3.10]\n")
        head = {"$schema": SCHEMA.format(entry["schema"])} if entry["schema"] else {}
        (folder / "job.yml").write_text(yaml.safe_dump(head | entry["job"], sort_keys=False))
        sets: dict[str, str] = {}
        while True:
            done = Command("aml-run").run("job.yml", "--dry-run", *[word for key, value in sets.items() for word in ("--set", f"{key}={value}")], cwd=folder)
            wish = re.search(r"--set (\S+)=(VALUE|FOLDER|FILE)", done.said)
            if done.status == 0 or wish is None or wish[1] in sets:
                break
            declared = (entry["job"].get("inputs") or {}).get(wish[1].split(".")[-1])
            kind = declared.get("type", "") if isinstance(declared, dict) else ""
            sets[wish[1]] = "conda.yml" if "uri_file" in (wish[2], kind) or wish[2] == "FILE" else "3" if wish[2] == "VALUE" and kind in PLAIN else "data"
        given = ["given " + " ".join(f"{key}={value}" for key, value in sets.items())] * bool(sets)
        said = [each.removeprefix("aml-dist: ") for each in done.said.splitlines()]
        if done.status == 0:
            assert subprocess.run(["bash", "-n"], input=done.out, check=False).returncode == 0, done.text
        shown, shape = [], []
        for each in done.text.splitlines():
            if found := re.match(r"#SBATCH --((?:nodes|ntasks|gpus|time|array)\S*)", each):
                shape.append(found[1])
            elif found := re.match(r"(?:AML\S+ )?(srun .*?)(?: bash -c \"\$command\")?(?: \|\| job_status=\$\?)?$", each):
                shown.append(" ".join([*shape, found[1]]))
                shape = []
        lines = [*given, *shown, *([f"refused: {each}" for each in said] if done.status != 0 else [f"said: {each}" for each in said])]
        return re.sub(r"/\S*/(aml-\w+)\b", r"\1", "\n".join(lines).replace(str(folder), "."))


@pytest.mark.parametrize("entry", jobs(), ids=lambda entry: entry["source"])
def test_a_job_file_of_a_document(entry):
    assert answer_to_job(entry) == entry["answer"].rstrip("\n")


def test_there_are_enough_job_files():
    assert len({entry["source"] for entry in jobs()}) >= 100


def write() -> None:
    for file in LINES:
        source, out = "", []
        for each_source, line, _ in entries([file]):
            if each_source != source:
                out.append(f"# {each_source}\n")
            source = each_source
            out.append(f"$ {line}\n{answer(line)}\n")
        file.write_text("".join(out))
    out = ["# Of Azure/azureml-examples; see test_documents.py.\n"]
    for entry in jobs():
        job = yaml.safe_dump(entry["job"], default_flow_style=True, width=10**6, sort_keys=False).strip()
        answer_lines = "".join(f"    {line}\n" for line in answer_to_job(entry).splitlines())
        schema = entry["schema"] or "''"
        out.append(f"- source: {entry['source']}\n  schema: {schema}\n  job: {job}\n  answer: |\n{answer_lines}")
    JOBS.write_text("".join(out))


if __name__ == "__main__" and sys.argv[1:] == ["--write"]:
    write()
