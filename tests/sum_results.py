#!/usr/bin/python3
"""Adds up the JUnit files of all suites: a table, the reasons of skips, the failed tests, and one true closing line."""

from __future__ import annotations

import pathlib
import sys
import xml.etree.ElementTree as ElementTree


LONGEST_REASON = 200  # characters


def reason_of(case: ElementTree.Element) -> str:
    """The first line of what a failed case says about itself; empty where it says nothing."""
    for kind in ("failure", "error"):
        told = case.find(kind)
        if told is not None:
            lines = (told.get("message") or told.text or "").strip().splitlines()
            return lines[0][:LONGEST_REASON] if lines else ""
    return ""


class Suite:
    def __init__(self, name: str, path: pathlib.Path) -> None:
        self.name = name
        self.passed = 0
        self.failed: list[str] = []
        self.skipped: list[str] = []
        if not path.is_file():
            self.failed.append("the suite left no results: see its log")
            return
        for case in ElementTree.parse(path).getroot().iter("testcase"):
            self.count(case)
        if not (self.passed or self.failed or self.skipped):
            self.failed.append("the suite ran no test")

    def count(self, case: ElementTree.Element) -> None:
        label = case.get("name", "?")
        skipped = case.find("skipped")
        if case.find("failure") is not None or case.find("error") is not None or case.get("status") == "fail":
            self.failed.append(": ".join(filter(None, (label, reason_of(case)))))
        elif skipped is not None or case.get("status") in ("notrun", "disabled"):
            reason = skipped.get("message", "") if skipped is not None else "not run"
            if reason.startswith("SKIP_"):  # CTest tells how it knew; the test itself has said why
                reason = (case.findtext("system-out") or "").strip().splitlines()[-1:] or [reason]
                reason = reason[0]
            self.skipped.append(f"{label}: {reason or 'no reason given'}")
        else:
            self.passed += 1


def main() -> int:
    folder, names = pathlib.Path(sys.argv[1]), sys.argv[2:]
    suites = [Suite(name, folder / f"{name}.xml") for name in names]
    for suite in suites:
        print(f"{suite.name:12} {suite.passed:5} passed {len(suite.failed):5} failed {len(suite.skipped):5} skipped")
    for suite in suites:
        for line in suite.failed:
            print(f"  failed   {suite.name}: {line}")
        for line in suite.skipped:
            print(f"  skipped  {suite.name}: {line}")
    failed = sum(len(suite.failed) for suite in suites)
    print(f"{sum(suite.passed for suite in suites)} passed, {failed} failed, "
          f"{sum(len(suite.skipped) for suite in suites)} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
