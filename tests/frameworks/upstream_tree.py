#!/usr/bin/env python3
"""PyTorch's public test/distributed over libdist and over Gloo: what passes over Gloo has to pass over libdist.

    PYTHON upstream_tree.py TREE [--files PATTERN...] [--keyword EXPRESSION] [--timeout SECONDS] [--json FILE]

TREE is a checkout of PyTorch, of a release near the PyTorch that PYTHON has. Its files are run unchanged; where they make a
ProcessGroupGloo, by name or directly, they get libdist's group instead (in_place_of_gloo.py), and the words of errors may be
libdist's. Prints a line for each file, with the number of groups of libdist that its processes made, then every test that
passes over Gloo and not over libdist. Needs pytest, expecttest, hypothesis and parameterized beside PyTorch, and the package
amldist on PYTHONPATH. Exit status: 0 there is no such test, 1 there is, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

HERE = pathlib.Path(__file__).resolve().parent
# Not about what a back end of a CPU does.
LEFT_OUT = ("rpc/", "elastic/", "nn/", "launcher/", "bin/", "_pycute/", "nccl", "ucc", "cuda", "argparse_util_test.py")


def hook(folder: pathlib.Path) -> None:
    """Makes PyTorch load in_place_of_gloo.py wherever `folder` is on the path of modules."""
    (folder / "in_place_of_gloo.py").symlink_to(HERE / "in_place_of_gloo.py")
    info = folder / "in_place_of_gloo-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: in-place-of-gloo\nVersion: 1\n")
    (info / "entry_points.txt").write_text("[torch.backends]\nin_place_of_gloo = in_place_of_gloo:install\n")


def verdicts_of(report: pathlib.Path) -> dict[str, tuple[str, str]]:
    """For each test of a JUnit file: passed, failed or skipped, and why."""
    verdicts = {}
    for case in ElementTree.parse(report).iter("testcase"):
        bad = case.find("failure") if case.find("failure") is not None else case.find("error")
        skipped = case.find("skipped")
        name = f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}"
        reason = next((found.get("message") or found.text or "" for found in (bad, skipped) if found is not None), "")
        text = (bad.text or "") if bad is not None else ""
        verdicts[name] = ("failed" if bad is not None else "skipped" if skipped is not None else "passed",
                          "\n".join([reason, text[-1500:]]).strip())
    return verdicts


def run(file: pathlib.Path, backend: str, folder: pathlib.Path, options: argparse.Namespace) -> dict[str, tuple[str, str]]:
    tree = options.tree.resolve()
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    paths = [str(folder), str(tree / "test"), str(file.parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"BACKEND": backend, "UPSTREAM_FORK": "1", "PYTHONPATH": os.pathsep.join(paths),
                                "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1", "WORLD_SIZE": "3",
                                "TEMP_DIR": str(folder), "UPSTREAM_MADE": str(made_by(folder)), "INIT_METHOD": f"file://{folder}/init"}
    command = ["timeout", "-k", "5", str(options.timeout), sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
               "-k", options.keyword, "--junit-xml", str(report), str(file)]
    done = subprocess.run(command, cwd=tree / "test", env=environment, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, errors="replace", check=False)
    if report.exists():
        return verdicts_of(report)
    return {"(the whole file)": ("failed", f"status {done.returncode}: " + (done.stdout + done.stderr)[-1500:])}


def made_by(folder: pathlib.Path) -> pathlib.Path:
    """A file with a byte for each group of libdist's that was made: a test that makes none shows nothing."""
    return folder / "made"


def counts(verdicts: dict[str, tuple[str, str]]) -> str:
    found = [verdict for verdict, _ in verdicts.values()]
    return "{:4} {:4} {:4}".format(*(found.count(kind) for kind in ("passed", "failed", "skipped")))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tree", type=pathlib.Path, help="a checkout of PyTorch")
    parser.add_argument("--files", nargs="+", default=["**/test_*.py"], metavar="PATTERN", help="under test/distributed")
    parser.add_argument("--keyword", default="", metavar="EXPRESSION", help="only tests that pytest -k would take")
    parser.add_argument("--timeout", type=int, default=600, help="of one file over one back end, in seconds")
    parser.add_argument("--json", type=pathlib.Path, help="write every verdict there")
    options = parser.parse_args()
    root = options.tree.resolve() / "test/distributed"
    files = list(dict.fromkeys(file for pattern in options.files for file in sorted(root.glob(pattern))
                               if not any(part in str(file.relative_to(root)) for part in LEFT_OUT)))
    if not files:
        parser.error(f"no such file under {root}")
    folder = pathlib.Path(tempfile.mkdtemp(prefix="amldist-upstream-"))
    hook(folder)
    results, worse = {}, []
    print(f"{'passed, failed, skipped over':56} {'Gloo':14}   {'libdist':14} groups")
    for file in files:
        name = str(file.relative_to(root))
        each = {backend: run(file, backend, folder, options) for backend in ("gloo", "amldist")}
        results[name] = each
        made = made_by(folder).stat().st_size if made_by(folder).exists() else 0
        made_by(folder).unlink(missing_ok=True)
        print(f"{name:56} {counts(each['gloo'])}   {counts(each['amldist'])} {made:6}", flush=True)
        for test, (verdict, _) in each["gloo"].items():
            ours, why = each["amldist"].get(test, ("did not run", ""))
            if verdict == "passed" and ours != "passed":
                worse.append(f"{name} {test}: {ours}\n    " + why[-600:].replace("\n", "\n    "))
        if options.json:
            options.json.write_text(json.dumps(results, indent=1))
    shutil.rmtree(folder, ignore_errors=True)
    total = {backend: {f"{name} {test}": verdict for name, each in results.items() for test, verdict in each[backend].items()}
             for backend in ("gloo", "amldist")}
    print(f"{'together':56} {counts(total['gloo'])}   {counts(total['amldist'])}")
    if all(verdict != "passed" for verdict, _ in total["gloo"].values()):
        sys.exit("upstream_tree: no test passes over Gloo: does this PyTorch fit the tree, and are pytest and expecttest there?")
    print(f"{len(worse)} pass over Gloo and not over libdist")
    print("\n".join(worse))
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
