#!/usr/bin/python3
"""Adds up the JUnit files of all suites: a table, the reasons of skips, the failed tests, and one true closing line.

A test that failed in SUITE.xml and passed in SUITE-again.xml counts as passed, and is named with what it said at first. What was found
after a test, such as a daemon that crashed or a node that is drained, stays a failure. Below the lines of failed tests is all that each
failure said, once where several tests say the same, as those do that share a cluster that did not start.

sum_results.py FOLDER SUITE...               the above
sum_results.py --again MOST FOLDER SUITE     the tests of pytest that failed, a line each, as pytest takes them; none where there were more
                                             than MOST failures, of which one that several tests share counts once
"""

from __future__ import annotations

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


LONGEST_REASON = 200  # characters
LONGEST_TEXT = 30  # lines


def told_by(case: ElementTree.Element) -> str:
    """What a failed case says about itself; empty where it says nothing."""
    told = next((found for kind in ("failure", "error") if (found := case.find(kind)) is not None), None)
    return "" if told is None else (told.get("message") or told.text or "").strip()


def first_line(text: str) -> str:
    return text.partition("\n")[0][:LONGEST_REASON]


def failures(cases: list[ElementTree.Element]) -> set[str]:
    """One for each failed test, but one only for all that share a fixture that failed."""
    return {told if (told := told_by(case)).startswith("failed on setup") else test_of(case) for case in cases}


def has_failed(case: ElementTree.Element) -> bool:
    return case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail"


def is_found_afterwards(case: ElementTree.Element) -> bool:
    return any("teardown" in error.get("message", "") for error in case.iter("error"))


def cases_of(path: pathlib.Path) -> list[ElementTree.Element]:
    return list(ElementTree.parse(path).getroot().iter("testcase")) if path.is_file() else []


def test_of(case: ElementTree.Element) -> str:
    """As pytest takes it, relative to the root of the tree."""
    return f"{case.get('classname', '?').replace('.', '/')}.py::{case.get('name', '?')}"


class Suite:
    def __init__(self, folder: pathlib.Path, name: str) -> None:
        self.name = name
        self.passed = 0
        self.failed: list[str] = []
        self.told: dict[str, None] = {}  # what failures said that have more than one line, in their order
        self.unsteady: list[str] = []
        self.skipped: list[str] = []
        path = folder / f"{name}.xml"
        if not path.is_file():
            self.failed.append("the suite left no results: see its log")
            return
        again = cases_of(folder / f"{name}-again.xml")
        bad = {test_of(case) for case in again if has_failed(case)}  # a test may have two cases: one for what follows it
        self.well_at_last = {test_of(case) for case in again if case.find("skipped") is None} - bad
        for case in cases_of(path):
            self.count(case)
        if not (self.passed or self.failed or self.skipped):
            self.failed.append("the suite ran no test")

    def count(self, case: ElementTree.Element) -> None:
        label = case.get("name", "?")
        skipped = case.find("skipped")
        if has_failed(case):
            text = told_by(case)
            told = ": ".join(filter(None, (label, first_line(text))))
            if "\n" in text:
                self.told[text] = None
            is_well = test_of(case) in self.well_at_last and not is_found_afterwards(case)
            (self.unsteady if is_well else self.failed).append(told)
            self.passed += is_well
        elif skipped is not None or case.get("status") in ("notrun", "disabled"):
            reason = skipped.get("message", "") if skipped is not None else "not run"
            if reason.startswith("SKIP_"):  # CTest tells how it knew; the test itself has said why
                reason = (case.findtext("system-out") or "").strip().splitlines()[-1:] or [reason]
                reason = reason[0]
            self.skipped.append(f"{label}: {reason or 'no reason given'}")
        else:
            self.passed += 1


def main() -> int:
    if sys.argv[1] == "--again":
        most, folder, name = int(sys.argv[2]), pathlib.Path(sys.argv[3]), sys.argv[4]
        failed = [case for case in cases_of(folder / f"{name}.xml") if has_failed(case) and not is_found_afterwards(case)]
        for test in dict.fromkeys(test_of(case) for case in failed if len(failures(failed)) <= most):
            print(test)
        return 0
    folder, names = pathlib.Path(sys.argv[1]), sys.argv[2:]
    suites = [Suite(folder, name) for name in names]
    for suite in suites:
        print(f"{suite.name:12} {suite.passed:5} passed {len(suite.failed):5} failed {len(suite.skipped):5} skipped")
    for suite in suites:
        for line in suite.failed:
            print(f"  failed   {suite.name}: {line}")
        for line in suite.unsteady:
            print(f"  unsteady {suite.name}: passed alone, but failed at first: {line}")
        for text in suite.told:
            print("\n".join(f"    | {line}" for line in text.splitlines()[-LONGEST_TEXT:]))
        for line in suite.skipped:
            print(f"  skipped  {suite.name}: {line}")
    failed = sum(len(suite.failed) for suite in suites)
    print(f"{sum(suite.passed for suite in suites)} passed, {failed} failed, "
          f"{sum(len(suite.skipped) for suite in suites)} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
