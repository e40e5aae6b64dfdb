#!/usr/bin/python3
"""Runs the cases of a build that have the label `unit`, many in one process: CTest starts a process for each, which takes longer
than most of them run. Adds their verdicts to the JUnit file that CTest has left about the other tests.

  tests/unit_tests.py build-development build-development/test-results/core.xml

A case that ends its program, or that hangs, has failed, and all others of that program are run again. So that a program which
fails after its last case (a leak) is blamed on the right one, its cases are then run one at a time.
Exit status: 0 all passed, 1 not.
"""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree

TOGETHER = 40  # cases in one process: few enough that programs share out the processors evenly
AT_ONCE = 3
FILTER = "--gtest_filter="
FAILED = "exit status 1"  # GoogleTest's, if a case has failed; a sanitizer that finds a leak has its own


@dataclasses.dataclass(frozen=True)
class Program:
    """How some cases are run; those that differ in it are no neighbours."""

    path: str
    folder: str
    environment: tuple[str, ...]
    limit: float  # seconds of one case


@dataclasses.dataclass
class Verdict:
    name: str  # CTest's
    seconds: float = 0.0
    failure: str = ""
    skipped: str | None = None


@dataclasses.dataclass
class Ended:
    """What one process left behind."""

    how: str  # empty: as it should
    output: str
    cases: dict[str, ElementTree.Element]  # by the filter that chooses them

    def last_begun(self) -> str | None:
        begun = re.findall(r"\[ RUN      \] (\S+)", self.output)
        return begun[-1] if begun else None


def cases_of(build: str) -> tuple[dict[Program, dict[str, str]], list[Verdict]]:
    """For each program the names that CTest has for its filters; and what is not run."""
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1", "--label-regex", "^unit$"], check=True,
                           capture_output=True, text=True)
    programs: dict[Program, dict[str, str]] = {}
    left_out = []
    for test in json.loads(shown.stdout)["tests"]:
        known = {each["name"]: each["value"] for each in test["properties"]}
        if known.get("DISABLED"):
            left_out.append(Verdict(test["name"], skipped="disabled"))
            continue
        chosen = next(word for word in test["command"] if word.startswith(FILTER)).removeprefix(FILTER)
        program = Program(test["command"][0], known.get("WORKING_DIRECTORY", build), tuple(known.get("ENVIRONMENT", ())),
                          known.get("TIMEOUT", 1500.0))
        programs.setdefault(program, {})[chosen] = test["name"]
    return programs, left_out


def run(program: Program, chosen: list[str]) -> Ended:
    """Ends the process where one case takes too long: a process that is well says when each begins."""
    with tempfile.TemporaryDirectory(prefix="aml-unit-") as scratch:
        said, report = pathlib.Path(scratch) / "said", pathlib.Path(scratch) / "report.xml"
        environment = {**os.environ, **dict(each.split("=", 1) for each in program.environment)}
        with said.open("wb") as out:
            process = subprocess.Popen([program.path, FILTER + ":".join(chosen), "--gtest_also_run_disabled_tests", f"--gtest_output=xml:{report}"],
                                       cwd=program.folder, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True)
            how = wait_for(process, said, program.limit)
        read = ElementTree.parse(report).getroot().iter("testcase") if report.exists() and not how.startswith("nothing") else ()
        cases = {f"{case.get('classname')}.{case.get('name')}": case for case in read if case.get("status") == "run"}
        return Ended(how, said.read_text(errors="replace"), cases)


def wait_for(process: subprocess.Popen[bytes], said: pathlib.Path, limit: float) -> str:
    """What went wrong, as the end of a sentence about the process."""
    begun, since = 0, time.monotonic()
    while True:
        try:
            status = process.wait(timeout=0.5)
            break
        except subprocess.TimeoutExpired:
            now = said.read_bytes().count(b"[ RUN      ]")
            if now != begun:
                begun, since = now, time.monotonic()
            if time.monotonic() - since > limit:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return f"nothing for {limit:.0f} s: killed"
    if status < 0:
        return f"ended by {signal.Signals(-status).name}"
    return f"exit status {status}" if status else ""


def judge(program: Program, names: dict[str, str]) -> list[Verdict]:
    """The verdicts over all these cases."""
    verdicts = []
    left = dict(names)
    while left:
        ended = run(program, list(left))
        if left.keys() <= ended.cases.keys():
            found = [of_case(name, ended.cases[chosen], ended.output) for chosen, name in left.items()]
            if ended.how and (ended.how != FAILED or not any(verdict.failure for verdict in found)):
                found = one_at_a_time(program, left, ended)
            return verdicts + found
        guilty = ended.last_begun()
        if guilty not in left:
            return verdicts + [Verdict(name, failure=f"{ended.how or 'no verdict'}\n{ended.output}") for name in left.values()]
        verdicts.append(Verdict(left.pop(guilty), failure=f"{ended.how or 'the program ended'}\n{ended.output}"))
    return verdicts


def one_at_a_time(program: Program, names: dict[str, str], together: Ended) -> list[Verdict]:
    """Of a program that fails after its last case. If no case does so alone, the last one stands for them."""
    if len(names) == 1:
        return [Verdict(name, failure=f"{together.how}\n{together.output}") for name in names.values()]
    verdicts = [verdict for chosen, name in names.items() for verdict in judge(program, {chosen: name})]
    if not any(verdict.failure for verdict in verdicts):
        verdicts[-1].failure = f"{together.how}, after the {len(names)} cases that end with this one\n{together.output}"
    return verdicts


def of_case(name: str, case: ElementTree.Element, output: str) -> Verdict:
    verdict = Verdict(name, float(case.get("time", "0")))
    failures = case.findall("failure")
    skipped = case.find("skipped")
    if failures:
        verdict.failure = "\n".join(each.text or each.get("message") or "" for each in failures) + f"\n{output}"
    elif skipped is not None:
        verdict.skipped = (skipped.get("message") or skipped.text or "").strip().splitlines()[-1]
    return verdict


def printable(text: str) -> str:
    """Without what XML does not take."""
    return re.sub(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd]", "?", text)


def add_to(path: pathlib.Path, verdicts: list[Verdict]) -> None:
    root = ElementTree.parse(path).getroot()
    for verdict in verdicts:
        case = ElementTree.SubElement(root, "testcase", name=verdict.name, classname=verdict.name, time=f"{verdict.seconds:.3f}")
        if verdict.failure:
            ElementTree.SubElement(case, "failure", message=printable(" ".join(verdict.failure.splitlines()[:3]))).text = printable(verdict.failure)
        elif verdict.skipped is not None:
            ElementTree.SubElement(case, "skipped", message=printable(verdict.skipped))
    kinds = {"tests": lambda _: True, "failures": lambda each: each.find("failure") is not None, "skipped": lambda each: each.find("skipped") is not None}
    for kind, is_one in kinds.items():
        root.set(kind, str(sum(map(is_one, root.iter("testcase")))))
    ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)


def main() -> int:
    build, path = sys.argv[1:]
    programs, verdicts = cases_of(str(pathlib.Path(build).resolve()))
    shares = []
    for program, names in programs.items():
        cases = list(names.items())
        count = -(-len(cases) // TOGETHER)
        shares += [(program, dict(cases[number::count])) for number in range(count)]
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        for found in pool.map(lambda share: judge(*share), shares):
            verdicts += found
    add_to(pathlib.Path(path), verdicts)
    failed = [verdict for verdict in verdicts if verdict.failure]
    for verdict in failed:
        print(f"*** FAILED: {verdict.name}: {verdict.failure}")
    print(f"unit: {len(verdicts)} cases, {len(failed)} failed")
    return 1 if failed or not verdicts else 0


if __name__ == "__main__":
    sys.exit(main())
