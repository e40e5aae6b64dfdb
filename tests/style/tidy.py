#!/usr/bin/env python3
"""tests/style/tidy.py [--all] [--jobs N] [FILE...]: clang-tidy as .clang-tidy has it; a warning is an error.

Without FILE it looks at what has changed: against the merge base with origin/main (or main), and where there is none, or nothing
lies between, in the last commits; with what is not committed yet. For a header it looks at one file that includes it. Of more
than 4 files it takes those that changed last, and says how many it leaves out. --all looks at every file of the product, which
takes an hour. Nothing has to be built; build-tidy is configured if need be. Exit status: 0 no warning, 1 warnings, 2 wrong usage.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
FOLDER = ROOT / "build-tidy"
PARTS = ("libdist/", "spank/", "srun-wrappers/")
MOST = 4  # files of a run that nobody has named
LAST_COMMITS = 3  # where there is no other base


def git(*words: str) -> str | None:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else None


def base() -> str | None:
    """The commit that changes are counted from; None in a clone of one commit."""
    head = git("rev-parse", "HEAD")
    for branch in ("origin/main", "main"):
        found = git("merge-base", "HEAD", branch)
        if found and found != head:
            return found
    for back in range(LAST_COMMITS, 0, -1):
        if found := git("rev-parse", "--verify", "--quiet", f"HEAD~{back}"):
            return found
    return None


def changed() -> list[str]:
    """Of the product, relative to the root; what changed last comes first."""
    names = (git("diff", "--name-only", "HEAD") or "").splitlines()
    names += (git("ls-files", "--others", "--exclude-standard") or "").splitlines()
    if start := base():
        names += (git("log", "--format=", "--name-only", f"{start}..HEAD") or "").splitlines()
    return [name for name in dict.fromkeys(names) if name.startswith(PARTS) and (ROOT / name).is_file()]


def once_each(commands: list[dict[str, str]]) -> list[dict[str, str]]:
    """One command for each file and what is defined for it: clang-tidy would look once for each library that it is compiled for."""
    def meaning(command: dict[str, str]) -> tuple[str, ...]:
        defined = re.findall(r"\s-D(\S+)", command["command"])
        return command["file"], *sorted(name for name in defined if not name.endswith("_EXPORTS"))
    return list({meaning(command): command for command in commands}.values())


def compiled() -> list[str]:
    """Every file that is compiled for the product, relative to the root."""
    if not (FOLDER / "compile_commands.json").exists() or not (FOLDER / "build.ninja").exists():
        environment = {name: value for name, value in os.environ.items() if not name.endswith("_COMPILER_LAUNCHER")}
        done = subprocess.run(["cmake", "-S", ROOT, "-B", FOLDER, "-G", "Ninja", "--preset", "development",
                               "-DAMLDIST_UNITY=OFF", "-DAMLDIST_WERROR=OFF",
                               "-DAMLDIST_TESTS=OFF", "-DAMLDIST_DEVICE=OFF"],
                              cwd=ROOT, env=environment, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"{done.stdout}{done.stderr}")
    else:  # files may have come since
        subprocess.run(["cmake", FOLDER], check=True, capture_output=True)
    database = FOLDER / "compile_commands.json"
    commands = once_each(json.loads(database.read_text()))
    for command in commands:  # gcc's own options, which clang does not know
        command["command"] = re.sub(r"\s-mmemset-strategy=\S+|\s-mmemcpy-strategy=\S+|\s--param=\S+", "", command["command"])
    database.write_text(json.dumps(commands, indent=1))
    files = {pathlib.Path(command["directory"], command["file"]).resolve() for command in commands}
    names = {file.relative_to(ROOT).as_posix() for file in files if file.is_relative_to(ROOT) and not file.is_relative_to(FOLDER)}
    return sorted(name for name in names if name.startswith(PARTS))


def translation_units(names: list[str], known: list[str]) -> list[str]:
    """The compiled files among `names`, and for each other one the file of its name or the first that includes it."""
    found: dict[str, None] = {}
    for name in names:
        if name in known:
            found[name] = None
        elif name.endswith((".hpp", ".h")):
            beside = str(pathlib.PurePath(name).with_suffix(".cpp"))
            tail = re.compile(r'#\s*include\s+["<](?:[^">]*/)?' + re.escape(pathlib.PurePath(name).name) + '[">]')
            users = (other for other in known if tail.search((ROOT / other).read_text()))
            if (user := beside if beside in known else next(users, None)) is not None:
                found[user] = None
    return list(found)


def tidy(name: str) -> str:
    """The warnings of one file and the headers of ours that it includes; empty without any."""
    done = subprocess.run(["clang-tidy", "-p", FOLDER, "--quiet", "--warnings-as-errors=*", name], cwd=ROOT,
                          capture_output=True, text=True)
    return done.stdout.strip() or (f"clang-tidy {name}: {done.stderr}" if done.returncode else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--all", action="store_true", help="every file of the product")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    parser.add_argument("files", nargs="*", metavar="FILE", help="relative to the root of the tree")
    arguments = parser.parse_args()
    for name in arguments.files:
        if not (ROOT / name).is_file():
            parser.error(f"no file {name}")
    known = compiled()
    units = known if arguments.all else translation_units(arguments.files or changed(), known)
    left_out = [] if arguments.all or arguments.files else units[MOST:]
    units = units[:len(units) - len(left_out)]
    warnings: set[str] = set()
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for said in filter(None, pool.map(tidy, units)):
            found = re.findall(r"^\S+:\d+:\d+: (?:warning|error): .*$", said, re.MULTILINE)
            print(said if not warnings.issuperset(found) or not found else "", flush=True)
            warnings.update(found or [said])
    print(f"{len(units)} files, {len(warnings)} warnings" + (f", {len(left_out)} files left out: --all" if left_out else ""))
    return 1 if warnings else 0


if __name__ == "__main__":
    sys.exit(main())
