"""What srun's line says when rank 2 of torch_faults.py does something wrong, and how the package is installed for it."""

from __future__ import annotations

import pathlib
import re
import shutil

HERE = pathlib.Path(__file__).resolve().parent
OWN = "rank 2 (local 0) on node2"
PLACE = r"; it is in \w+ at torch_faults\.py:\d+"
# What the others are in when rank 2 does not come.
CALLS = {"ddp": r"allreduce #\d+ \(.*\)", "fsdp": r"allgather #\d+ \(.*\)( of group '\S+')?",
         "pipeline": r"(recv|send) \(.*\) (from|to) rank 2|allreduce #\d+ \(.*\) of group 'stage 1'|barrier #\d+"}
FAULTS = {
    "late": rf"{re.escape(OWN)} has not (called|met) it for \d+ s; \d ranks? waits?{PLACE}",
    "stopped": rf"{re.escape(OWN)} is stopped( after| in)? .*for \d+ s; \d ranks? waits?({PLACE})?",
    "operation": rf"{re.escape(OWN)} (called barrier #\d+ instead|has not (called|met) it for \d+ s); \d ranks? waits?{PLACE}",
    "skipped": rf"{re.escape(OWN)} (called barrier #\d+ instead|has not (called|met) it for \d+ s); \d ranks? waits?{PLACE}",
    # The wrong root and the right one wait for each other in that call, while the others, who only sent, are in the next.
    "root": rf"(rank 0 \(local 0\) on node1 has not called it for \d+ s, )?{re.escape(OWN)} (called reduce #\d+ .* instead.*|has not "
            rf"called it for \d+ s); \d ranks? waits?({PLACE})?",
    "communicator": rf"{re.escape(OWN)} has not called it for \d+ s; \d ranks? waits?{PLACE}",
}
# The call of all that the fault is, or the next one, whatever way of training is around it.
TOGETHER = {"root": r"(reduce|allreduce|allgather|barrier) #\d+.*|(recv|send) .* (from|to) rank [02]", "communicator": r"allreduce #\d+ \(.*\)"}
CIRCLE_OF_ALL = r"aml-dist: hang: deadlock of 4 ranks for \d+ s: rank 0 waits in send .* to rank 1 for rank 1, .*"
# Who is asked first decides between the two: this is what it is, too.
CIRCLE = "deadlock of 2 ranks for \\d+ s: rank 0 waits in send .* to rank 2 for rank 2, rank 2 waits in barrier #2 for rank 0"


def parts_of(line: str) -> tuple[str, str, str] | None:
    """Call, rank and fault, and file of srun's line."""
    said = re.fullmatch(r"aml-dist: hang: (.*?): (rank .*); its stack is in (aml-dist-hang-\d+\.\d+\.txt)", line)
    return (said[1], said[2], said[3]) if said else None


def is_circle(way: str, fault: str, line: str) -> bool:
    return way == "pipeline" and fault in ("operation", "skipped") and re.search(CIRCLE, line) is not None


def is_named(way: str, fault: str, line: str) -> bool:
    if fault == "circle":
        return re.match(CIRCLE_OF_ALL, line) is not None
    parts = parts_of(line)
    named = parts is not None and re.fullmatch(FAULTS[fault], parts[1]) and re.fullmatch(TOGETHER.get(fault, CALLS[way]), parts[0])
    return bool(named) or is_circle(way, fault, line)


def install_recorder(site: pathlib.Path) -> None:
    """Installs in SITE what records PyTorch's calls, as pip would do it with the package."""
    shutil.copytree(HERE.parents[1] / "libdist/api/python/amldist_trace", site / "amldist_trace", ignore=shutil.ignore_patterns("__pycache__"))
    information = site / "amldist-0.1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: amldist\nVersion: 0.1.0\n")
    (information / "entry_points.txt").write_text("[torch.backends]\namldist_trace = amldist_trace:load\n")


def install_package(folder: pathlib.Path, venv: pathlib.Path) -> str:
    """Installs the package as pip would, in FOLDER/site, and returns the command of torch_faults.py."""
    site = folder / "site"
    install_recorder(site)
    shutil.copy(HERE / "torch_faults.py", folder)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return f"env PYTHONPATH={site} OMP_NUM_THREADS=1 {venv}/bin/python {folder}/torch_faults.py"
