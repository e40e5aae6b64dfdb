"""The series that the commands print are those of docs/monitoring.md, and the dashboard and the alerts ask for no others."""

from __future__ import annotations

import re

import tree

SOURCES = ["srun-wrappers/aml_dist/trace/trace_metrics.cpp", "srun-wrappers/aml_dist/check/check_metrics.cpp"]
SERIES = r"\baml_dist_(?:node|check|port|trace)_[a-z_]+\b"


def series_of(path: str) -> set[str]:
    return set(re.findall(SERIES, (tree.ROOT / path).read_text()))


def test_the_page_has_each_series_and_no_other():
    printed = {name for path in SOURCES for name in re.findall(f'"({SERIES})"', (tree.ROOT / path).read_text())}
    rows = re.findall(r"^\| (.*?) \|", (tree.ROOT / "docs/monitoring.md").read_text(), re.M)
    assert printed and {name for row in rows for name in re.findall(SERIES, row)} == printed


def test_no_other_file_asks_for_a_series_that_there_is_not():
    printed = {name for path in SOURCES for name in series_of(path)}
    for file in tree.files():
        if file.parts[0] in ("contrib", "docs") and file.suffix in (".json", ".yml", ".yaml", ".md", ".rules"):
            assert series_of(file.as_posix()) <= printed, file
