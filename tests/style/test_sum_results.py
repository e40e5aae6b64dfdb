"""tests/sum_results.py says of a run of pytest what failed, why, and which tests are worth a second try."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest

SUM_RESULTS = pathlib.Path(__file__).resolve().parents[1] / "sum_results.py"
SAID = "devcluster: node node1 is not idle"
TESTS = f"""
import pytest

@pytest.fixture(scope="module")
def broken():
    assert False, "$ devcluster start\\nstatus 1\\n{SAID}"

@pytest.mark.parametrize("command", ["srun '$X'", "[ $RANK != 0 ]", "c", "d", "e"])
def test_of_a_document(broken, command): pass

def test_of_its_own(): assert 1 == 2

def test_that_is_well(): pass
"""


def run_tests(folder: pathlib.Path, results: str, *which: str) -> None:
    subprocess.run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junit-xml={results}", *(which or ["test_these.py"])],
                   cwd=folder, capture_output=True, timeout=120)


def told(folder: pathlib.Path, *arguments: str) -> list[str]:
    done = subprocess.run([sys.executable, str(SUM_RESULTS), *arguments], cwd=folder, capture_output=True, text=True, timeout=60)
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    (folder / "test_these.py").write_text(TESTS)
    run_tests(folder, "live.xml")
    return folder


def test_tests_that_share_a_broken_fixture_are_one_failure_of_those_that_are_tried_again(folder):
    again = told(folder, "--again", "2", ".", "live")
    assert again == [*(f"test_these.py::test_of_a_document[{each}]" for each in ("srun '$X'", "[ $RANK != 0 ]", "c", "d", "e")),
                     "test_these.py::test_of_its_own"]


def test_where_more_failed_nothing_is_tried_again(folder):
    assert told(folder, "--again", "1", ".", "live") == []


def test_all_that_a_shared_failure_said_is_there_once(folder):
    lines = told(folder, ".", "live")
    assert lines[-1] == "1 passed, 6 failed, 0 skipped"
    assert sum(line.startswith("  failed   live: test_of_a_document[") for line in lines) == 5
    assert [line for line in lines if SAID in line] == [f"    |   {SAID}"]


def test_what_passes_alone_is_told_as_unsteady(folder):
    healed = TESTS.replace("assert False", "assert True").replace("1 == 2", "2 == 2")
    (folder / "test_these.py").write_text(healed)
    run_tests(folder, "live-again.xml", *told(folder, "--again", "2", ".", "live"))
    lines = told(folder, ".", "live")
    assert lines[-1] == "7 passed, 0 failed, 0 skipped"
    assert sum(line.startswith("  unsteady live: passed alone, but failed at first: ") for line in lines) == 6
